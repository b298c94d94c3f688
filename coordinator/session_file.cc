// Session::Save and Load: the whole state of a session as one file (docs/format.md, "Session
// files").
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "coordinator/model_impl.h"
#include "coordinator/session.h"

namespace shoal {
namespace {

constexpr char kMagic[8] = {'S', 'H', 'O', 'A', 'L', 'S', 'E', 'S'};
constexpr uint32_t kSessionVersion = 1;
constexpr size_t kIdentityBytes = 64;  // hexadecimal

// The file is read in steps of this, and leaves the page cache after each.
constexpr uint64_t kStepBytes = uint64_t{4} << 20;
// Written bytes stay in the page cache until they are synced.
constexpr uint64_t kMaxUnsyncedBytes = uint64_t{8} << 20;

// The first bytes of the file, little-endian, without padding.
struct SessionFileHeader {
  char magic[8];
  uint32_t version;
  uint32_t num_logits;  // vocab_size, or 0 where the last token's logits were not computed
  uint64_t num_tokens;
  uint64_t payload_bytes;
  char identity[kIdentityBytes];
};
static_assert(sizeof(SessionFileHeader) == 96);

// Visits the payload's arrays after the tokens in file order: logits, then every layer's state.
absl::Status ForEachArray(SessionData& session,
                          const std::function<absl::Status(std::span<std::byte>)>& visit) {
  SHOAL_RETURN_IF_ERROR(visit(std::as_writable_bytes(std::span(session.logits))));
  const ModelConfig& config = *session.config;
  const size_t latent_row =
      static_cast<size_t>(config.mla.kv_lora_rank + config.mla.qk_rope_head_dim);
  for (int64_t layer = 0; layer < config.num_layers(); ++layer) {
    if (config.layers[static_cast<size_t>(layer)].attention == AttentionKind::kMla) {
      SHOAL_RETURN_IF_ERROR(visit(std::as_writable_bytes(
          session.state.latent(layer).first(session.tokens.size() * latent_row))));
      continue;
    }
    DeltaState& delta = session.state.current(layer);
    SHOAL_RETURN_IF_ERROR(visit(std::as_writable_bytes(delta.recurrent)));
    for (const auto& tail : delta.tails) {
      SHOAL_RETURN_IF_ERROR(visit(std::as_writable_bytes(tail)));
    }
  }
  return absl::OkStatus();
}

uint64_t PayloadBytes(const SessionData& session, uint64_t num_tokens, uint64_t num_logits) {
  const ModelConfig& config = *session.config;
  return (num_tokens + num_logits) * 4 + SessionState::KvBytesPerToken(config) * num_tokens +
         SessionState::DeltaBytes(config) / 2;
}

absl::Status SyncAndDrop(const UniqueFd& fd, const std::string& path) {
  SHOAL_RETURN_IF_ERROR(SyncFile(fd, path));
  DropPageCache(fd, 0, 0);
  return absl::OkStatus();
}

absl::Status WriteContent(SessionData& session, const UniqueFd& fd, const std::string& path) {
  SessionFileHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kSessionVersion;
  header.num_logits = static_cast<uint32_t>(session.logits.size());
  header.num_tokens = session.tokens.size();
  header.payload_bytes = PayloadBytes(session, header.num_tokens, header.num_logits);
  const std::string& identity = *session.identity;
  std::memcpy(header.identity, identity.data(), std::min(identity.size(), kIdentityBytes));

  Sha256 hash;
  uint64_t unsynced_bytes = 0;
  const auto write = [&](std::span<const std::byte> bytes) -> absl::Status {
    while (!bytes.empty()) {
      const auto step = bytes.first(std::min<uint64_t>(bytes.size(), kStepBytes));
      hash.Update(step);
      SHOAL_RETURN_IF_ERROR(WriteAll(fd, path, step));
      bytes = bytes.subspan(step.size());
      unsynced_bytes += step.size();
      if (unsynced_bytes >= kMaxUnsyncedBytes) {
        SHOAL_RETURN_IF_ERROR(SyncAndDrop(fd, path));
        unsynced_bytes = 0;
      }
    }
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(write(std::as_bytes(std::span(&header, 1))));
  SHOAL_RETURN_IF_ERROR(write(std::as_bytes(std::span(session.tokens))));
  SHOAL_RETURN_IF_ERROR(ForEachArray(session, write));
  const Sha256Digest digest = hash.Finish();
  SHOAL_RETURN_IF_ERROR(WriteAll(fd, path, digest));
  return SyncAndDrop(fd, path);
}

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); });
}

// Checks the header against this session.
absl::Status CheckHeader(const SessionFileHeader& header, const SessionData& session,
                         uint64_t file_bytes) {
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return absl::InvalidArgumentError("not a session file of Shoal");
  }
  if (header.version != kSessionVersion) {
    return absl::UnimplementedError(absl::StrCat("session file version ", header.version,
                                                 "; this build reads version ", kSessionVersion));
  }
  const std::string& identity = *session.identity;
  const absl::string_view saved(header.identity, kIdentityBytes);
  if (!IsHex(saved)) {
    return absl::DataLossError(absl::StrCat("its container's identity is not ", kIdentityBytes,
                                            " hexadecimal digits; the file is damaged"));
  }
  if (saved != identity) {
    return absl::FailedPreconditionError(absl::StrCat("saved with container ", saved.substr(0, 12),
                                                      "..., this model is ", identity.substr(0, 12),
                                                      "..."));
  }
  const auto context = static_cast<uint64_t>(session.context_tokens);
  if (header.num_tokens > context) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it holds ", header.num_tokens, " tokens and this context ", context,
                     "; open the model with --ctx ", header.num_tokens, " or more"));
  }
  if (header.num_logits != 0 &&
      header.num_logits != static_cast<uint64_t>(session.config->vocab_size)) {
    return absl::DataLossError(absl::StrCat(
        "it holds ", header.num_logits, " logits; this model has ", session.config->vocab_size));
  }
  const uint64_t payload = PayloadBytes(session, header.num_tokens, header.num_logits);
  const uint64_t expected = sizeof(header) + payload + Sha256Digest().size();
  if (header.payload_bytes != payload || file_bytes != expected) {
    return absl::DataLossError(absl::StrCat("it has ", file_bytes, " bytes where ", expected,
                                            " are expected; the file is damaged"));
  }
  return absl::OkStatus();
}

// Hashes the whole file but its last 32 bytes and compares with those.
absl::Status CheckDigest(const UniqueFd& fd, const std::string& path, uint64_t file_bytes) {
  Sha256Digest stored;
  uint64_t rest = file_bytes - stored.size();
  SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, path, rest, stored));
  Sha256 hash;
  std::vector<std::byte> buffer(size_t{1} << 16);
  for (uint64_t at = 0; rest > 0;) {
    const auto step = std::span(buffer).first(std::min<uint64_t>(buffer.size(), rest));
    SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, path, at, step));
    if ((at + step.size()) % kStepBytes == 0) {
      DropPageCache(fd, 0, at + step.size());
    }
    hash.Update(step);
    at += step.size();
    rest -= step.size();
  }
  if (hash.Finish() != stored) {
    return absl::DataLossError("its digest differs from its content; the file is damaged");
  }
  DropPageCache(fd, 0, 0);
  return absl::OkStatus();
}

// Reads `out` at `at` in steps.
absl::Status ReadArray(const UniqueFd& fd, const std::string& path, uint64_t at,
                       std::span<std::byte> out) {
  while (!out.empty()) {
    const auto step = out.first(std::min<uint64_t>(out.size(), kStepBytes));
    SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, path, at, step));
    DropPageCache(fd, at, step.size());
    out = out.subspan(step.size());
    at += step.size();
  }
  return absl::OkStatus();
}

// What can be known of the file before its content is used: header, size and digest.
absl::StatusOr<SessionFileHeader> CheckFile(const UniqueFd& fd, const std::string& path,
                                            const SessionData& session) {
  SHOAL_ASSIGN_OR_RETURN(const uint64_t file_bytes, FileBytes(fd, path));
  SessionFileHeader header = {};
  if (file_bytes < sizeof(header)) {
    return absl::InvalidArgumentError("not a session file of Shoal: too short");
  }
  SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, path, 0, std::as_writable_bytes(std::span(&header, 1))));
  SHOAL_RETURN_IF_ERROR(CheckHeader(header, session, file_bytes));
  // In a pass of its own: a damaged file must not cost the state that is there.
  SHOAL_RETURN_IF_ERROR(CheckDigest(fd, path, file_bytes));
  return header;
}

absl::StatusOr<std::vector<int32_t>> ReadTokens(const UniqueFd& fd, const std::string& path,
                                                const SessionFileHeader& header,
                                                int64_t vocab_size) {
  std::vector<int32_t> tokens(header.num_tokens);
  SHOAL_RETURN_IF_ERROR(
      ReadArray(fd, path, sizeof(header), std::as_writable_bytes(std::span(tokens))));
  for (const int32_t id : tokens) {
    if (id < 0 || id >= vocab_size) {
      return absl::DataLossError(
          absl::StrCat("it holds token id ", id, ", which this model does not have"));
    }
  }
  return tokens;
}

// Everything behind the tokens.
absl::Status ReadState(const UniqueFd& fd, const std::string& path, const SessionFileHeader& header,
                       SessionData& session) {
  session.logits.resize(header.num_logits);
  uint64_t offset = sizeof(header) + header.num_tokens * sizeof(int32_t);
  return ForEachArray(session, [&](std::span<std::byte> bytes) {
    const uint64_t at = offset;
    offset += bytes.size();
    return ReadArray(fd, path, at, bytes);
  });
}

}  // namespace

absl::Status Session::Save(const std::string& path) const {
  SHOAL_RETURN_IF_ERROR(impl_->CheckTrust());
  const std::string temporary = absl::StrCat(path, ".tmp");
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, CreateForWrite(temporary));
  absl::Status status = WriteContent(*impl_, fd, temporary);
  if (status.ok()) {
    status = Annotate(fd.Close(), temporary);
  }
  if (status.ok()) {
    status = RenameDurably(temporary, path);
  }
  if (!status.ok()) {
    std::error_code ignored;  // the first error is the one to report
    std::filesystem::remove(temporary, ignored);
  }
  return status;
}

absl::Status Session::Load(const std::string& path) {
  const std::string what = absl::StrCat("load session ", path);
  const absl::StatusOr<UniqueFd> fd = OpenForRead(path);
  SHOAL_RETURN_IF_ERROR(Annotate(fd.status(), what));
  const absl::StatusOr<SessionFileHeader> header = CheckFile(*fd, path, *impl_);
  SHOAL_RETURN_IF_ERROR(Annotate(header.status(), what));
  const auto tokens = ReadTokens(*fd, path, *header, impl_->config->vocab_size);
  SHOAL_RETURN_IF_ERROR(Annotate(tokens.status(), what));
  impl_->retractions = impl_->model.Retractions();
  impl_->tokens.assign(tokens->begin(), tokens->end());  // keeps the capacity of NewSession
  const absl::Status status = ReadState(*fd, path, *header, *impl_);
  if (!status.ok()) {
    Reset();
  }
  return Annotate(status, what);
}

}  // namespace shoal

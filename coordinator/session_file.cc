// Session::Save and Load: the whole state of a session as one file (docs/format.md, "Session
// files").
#include <array>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

// Visits the payload's arrays in file order: tokens, logits, then every layer's state.
absl::Status ForEachArray(SessionData& session,
                          const std::function<absl::Status(std::span<std::byte>)>& visit) {
  SHOAL_RETURN_IF_ERROR(visit(std::as_writable_bytes(std::span(session.tokens))));
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

absl::Status WritePayload(SessionData& session, const UniqueFd& fd, const std::string& path) {
  SessionFileHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kSessionVersion;
  header.num_logits = static_cast<uint32_t>(session.logits.size());
  header.num_tokens = session.tokens.size();
  header.payload_bytes = PayloadBytes(session, header.num_tokens, header.num_logits);
  const std::string& identity = *session.identity;
  std::memcpy(header.identity, identity.data(), std::min(identity.size(), kIdentityBytes));

  Sha256 hash;
  const auto write = [&](std::span<const std::byte> bytes) {
    hash.Update(bytes);
    return WriteAll(fd, path, bytes);
  };
  SHOAL_RETURN_IF_ERROR(write(std::as_bytes(std::span(&header, 1))));
  SHOAL_RETURN_IF_ERROR(ForEachArray(session, write));
  const Sha256Digest digest = hash.Finish();
  return WriteAll(fd, path, digest);
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
  if (saved != identity) {
    return absl::FailedPreconditionError(
        absl::StrCat("saved with container ", absl::string_view(saved).substr(0, 12),
                     "..., this model is ", identity.substr(0, 12), "..."));
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
    hash.Update(step);
    at += step.size();
    rest -= step.size();
  }
  if (hash.Finish() != stored) {
    return absl::DataLossError("its digest differs from its content; the file is damaged");
  }
  return absl::OkStatus();
}

absl::Status LoadFile(const std::string& path, SessionData& session) {
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, OpenForRead(path));
  SHOAL_ASSIGN_OR_RETURN(uint64_t file_bytes, FileBytes(fd, path));
  SessionFileHeader header = {};
  if (file_bytes < sizeof(header)) {
    return absl::InvalidArgumentError("not a session file of Shoal: too short");
  }
  SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, path, 0, std::as_writable_bytes(std::span(&header, 1))));
  SHOAL_RETURN_IF_ERROR(CheckHeader(header, session, file_bytes));
  // The digest first, in a pass of its own: a damaged file must not leave half a state behind.
  SHOAL_RETURN_IF_ERROR(CheckDigest(fd, path, file_bytes));
  std::vector<int32_t> tokens(header.num_tokens);
  SHOAL_RETURN_IF_ERROR(
      ReadExactAt(fd, path, sizeof(header), std::as_writable_bytes(std::span(tokens))));
  for (const int32_t id : tokens) {
    if (id < 0 || id >= session.config->vocab_size) {
      return absl::DataLossError(
          absl::StrCat("it holds token id ", id, ", which this model does not have"));
    }
  }
  session.tokens = std::move(tokens);
  session.logits.assign(header.num_logits, 0.0F);
  uint64_t offset = sizeof(header);
  return ForEachArray(session, [&](std::span<std::byte> bytes) {
    const uint64_t at = offset;
    offset += bytes.size();
    return ReadExactAt(fd, path, at, bytes);
  });
}

}  // namespace

absl::Status Session::Save(const std::string& path) const {
  const std::string temporary = absl::StrCat(path, ".tmp");
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, CreateForWrite(temporary));
  SHOAL_RETURN_IF_ERROR(WritePayload(*impl_, fd, temporary));
  SHOAL_RETURN_IF_ERROR(SyncFile(fd, temporary));
  SHOAL_RETURN_IF_ERROR(Annotate(fd.Close(), temporary));
  return RenameDurably(temporary, path);
}

absl::Status Session::Load(const std::string& path) {
  const absl::Status status = LoadFile(path, *impl_);
  return Annotate(status, absl::StrCat("load session ", path));
}

}  // namespace shoal

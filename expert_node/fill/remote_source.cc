#include "expert_node/fill/remote_source.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/container/bank_scan.h"
#include "common/container/directory_files.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/clock.h"
#include "common/sync/stop_wait.h"
#include "expert_node/service/node_client.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "kernels/rvq.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {
namespace {

// What a message may have beside its bytes.
constexpr uint64_t kFramingBytes = 1024;
constexpr uint64_t kFirstMessageBytes = uint64_t{4} << 20;
constexpr TermsSides kFilledFrom = {"the model to be filled", "the source"};
constexpr absl::Duration kAskAgainAfter = absl::Milliseconds(200);

// Of the slices, the first that has something in common with `part`; that.
std::optional<ExpertSlice> HeldOf(const std::vector<ExpertSlice>& held, const ExpertSlice& part) {
  for (const ExpertSlice& slice : held) {
    if (const ExpertSlice common = Intersect(slice, part); !common.empty()) {
      return common;
    }
  }
  return std::nullopt;
}

// A source that breaks a rule: its bytes are not what they have to be.
absl::Status Broken(const absl::Status& status) {
  return absl::IsDataLoss(status) ? absl::InvalidArgumentError(status.message()) : status;
}

}  // namespace

struct RemoteSource::Source {
  std::string address;
  std::unique_ptr<NodeClient> client;
  std::unique_ptr<v1::DescribeReply> said;
  std::vector<ExpertSlice> held;
  absl::Status given_up;  // for good
  absl::Status left_out;  // for this bank

  bool usable() const { return given_up.ok() && left_out.ok(); }
  const absl::Status& why() const { return given_up.ok() ? left_out : given_up; }
};

// Units that are fetched into memory together.
struct RemoteSource::Block {
  int64_t layer = 0;
  ExpertSlice slice;
  absl::string_view leaves;
  std::span<std::byte> bytes;  // [experts, units, unit_bytes]
};

RemoteSource::RemoteSource(const v1::Terms& terms, Options options, std::stop_token stop)
    : terms_(std::make_unique<const v1::Terms>(terms)),
      options_(std::move(options)),
      stop_(std::move(stop)) {
  sources_.reserve(options_.addresses.size());
  for (const std::string& address : options_.addresses) {
    auto source = std::make_unique<Source>();
    source->address = address;
    source->client = std::make_unique<NodeClient>(address, kFirstMessageBytes, Way());
    sources_.push_back(std::move(source));
  }
}

RemoteSource::~RemoteSource() = default;

ChannelSecurity RemoteSource::Way() const {
  return {options_.own, ChannelSecurity::Peer::kLender, ""};
}

absl::StatusOr<std::unique_ptr<RemoteSource>> RemoteSource::Connect(const v1::Terms& terms,
                                                                    Options options,
                                                                    std::stop_token stop) {
  std::unique_ptr<RemoteSource> source(
      new RemoteSource(terms, std::move(options), std::move(stop)));
  SHOAL_RETURN_IF_ERROR(source->DescribeAll());
  SHOAL_RETURN_IF_ERROR(source->FetchManifest());
  SHOAL_RETURN_IF_ERROR(source->TakeHoldings());
  return source;
}

absl::Status RemoteSource::DescribeAll() {
  for (const auto& source : sources_) {
    absl::StatusOr<v1::DescribeReply> said = source->client->Describe(stop_);
    absl::Status status = said.status();
    if (said.ok()) {
      source->said = std::make_unique<v1::DescribeReply>(*std::move(said));
      status = source->said->has_terms()
                   ? CheckTerms(*terms_, source->said->terms(), kFilledFrom)
                   : absl::FailedPreconditionError("it is an empty node: it holds nothing");
    }
    if (!status.ok()) {
      SHOAL_RETURN_IF_ERROR(CheckStop());
      GiveUp(*source, status);
    }
  }
  return absl::OkStatus();
}

absl::Status RemoteSource::FetchManifest() {
  SHOAL_RETURN_IF_ERROR(Ask(
      std::string(kManifestFile), [](const Source&) { return true; },
      [this](Source& source) { return FetchManifestFrom(source); }));
  return CheckTerms(MakeTerms(manifest_), *terms_, {"the manifest that came", "the request"});
}

absl::Status RemoteSource::FetchManifestFrom(Source& source) {
  v1::FetchModelRequest request;
  *request.mutable_terms() = *terms_;
  request.set_file(v1::MODEL_FILE_MANIFEST);
  SHOAL_ASSIGN_OR_RETURN(manifest_text_,
                         source.client->FetchModel(request, kMaxManifestBytes, stop_));
  SHOAL_RETURN_IF_ERROR(Broken(CompareDigest(Sha256::Of(manifest_text_), options_.manifest_sha256,
                                             absl::StrCat("its ", kManifestFile))));
  request.set_file(v1::MODEL_FILE_CONFIG);
  SHOAL_ASSIGN_OR_RETURN(config_json_, source.client->FetchModel(request, kMaxConfigBytes, stop_));
  absl::StatusOr<Manifest> manifest =
      ParseManifest(manifest_text_, config_json_, absl::StrCat(source.address, "/", kManifestFile));
  if (!manifest.ok()) {
    // The manifest is the right one, so that it is config.json which is not.
    return absl::InvalidArgumentError(manifest.status().message());
  }
  manifest_ = *std::move(manifest);
  return absl::OkStatus();
}

// Now that it is known what they can hold, and how large their messages may be.
absl::Status RemoteSource::TakeHoldings() {
  const UnitLayout& layout = manifest_.unit_layout;
  const uint64_t most = static_cast<uint64_t>(layout.num_units) * layout.unit_bytes + kFramingBytes;
  if (most > static_cast<uint64_t>(std::numeric_limits<int>::max())) {
    return absl::UnimplementedError(
        absl::StrCat("an expert has ", layout.record_bytes, " bytes; messages hold 2 GiB"));
  }
  for (const auto& source : sources_) {
    if (!source->usable()) {
      continue;
    }
    absl::StatusOr<std::vector<ExpertSlice>> held =
        HoldingsOf(*source->said, manifest_.whole_experts());
    if (!held.ok()) {
      GiveUp(*source, held.status());
      continue;
    }
    source->held = *std::move(held);
    source->client =
        std::make_unique<NodeClient>(source->address, std::max(most, kFirstMessageBytes), Way());
  }
  return absl::OkStatus();
}

absl::Status RemoteSource::CheckCovers(std::span<const ExpertSlice> wanted) const {
  std::vector<ExpertSlice> held;
  for (const auto& source : sources_) {
    held.insert(held.end(), source->held.begin(), source->held.end());
  }
  for (const ExpertSlice& slice : wanted) {
    if (const std::vector<ExpertSlice> missing = Uncovered(slice, held); !missing.empty()) {
      return NobodyLeft(FormatSlice(missing.front()), [](const Source&) { return false; });
    }
  }
  return absl::OkStatus();
}

absl::Status RemoteSource::Ask(const std::string& what, Can can, AskOne ask) {
  const Clock& clock = Clock::Real();
  const absl::Time end = clock.Now() + options_.busy_wait;
  while (true) {
    bool done = false;
    SHOAL_ASSIGN_OR_RETURN(const bool busy, AskOnce(can, ask, &done));
    if (done) {
      return absl::OkStatus();
    }
    if (!busy || clock.Now() >= end) {
      return NobodyLeft(what, can);
    }
    SHOAL_RETURN_IF_ERROR(WaitUnlessStopped(kAskAgainAfter, stop_));
  }
}

absl::StatusOr<bool> RemoteSource::AskOnce(Can can, AskOne ask, bool* done) {
  bool busy = false;
  for (const auto& source : sources_) {
    if (!source->usable() || !can(*source)) {
      continue;
    }
    const absl::Status status = ask(*source);
    if (status.ok()) {
      *done = true;
      return false;
    }
    SHOAL_RETURN_IF_ERROR(CheckStop());
    if (absl::IsResourceExhausted(status)) {
      busy = true;
    } else {
      GiveUp(*source, status);
    }
  }
  return busy;
}

// Damage of one bank says nothing about the next.
void RemoteSource::TakeBackThoseLeftOut() {
  for (const auto& source : sources_) {
    source->left_out = absl::OkStatus();
  }
}

void RemoteSource::GiveUp(Source& source, const absl::Status& why) {
  const bool its_disk = absl::IsDataLoss(why);
  (its_disk ? source.left_out : source.given_up) = why;
  options_.on_note(
      absl::StrCat("source ", source.address,
                   its_disk ? " is left out for this layer: " : " is asked for nothing more: ",
                   std::string(why.message())));
}

absl::Status RemoteSource::CheckStop() const {
  return stop_.stop_requested() ? absl::CancelledError("stopped") : absl::OkStatus();
}

absl::Status RemoteSource::NobodyLeft(const std::string& what, Can can) const {
  std::string text = absl::StrCat("no source is left for ", what, ":");
  bool wrong = false;
  for (const auto& source : sources_) {
    const absl::Status& why = source->why();
    wrong = wrong || absl::IsDataLoss(why) || absl::IsInvalidArgument(why);
    absl::StrAppend(&text, " ", source->address, ": ",
                    !why.ok()      ? std::string(why.message())
                    : can(*source) ? "it stays busy"
                                   : "it does not hold that",
                    ";");
  }
  text.pop_back();
  return wrong ? absl::DataLossError(text) : absl::UnavailableError(text);
}

absl::StatusOr<std::string> RemoteSource::FetchFile(
    int file, int64_t layer, uint64_t size_bytes,
    absl::FunctionRef<absl::Status(const std::string&)> check) {
  v1::FetchModelRequest request;
  *request.mutable_terms() = *terms_;
  request.set_file(static_cast<v1::ModelFile>(file));
  request.set_layer(static_cast<uint32_t>(layer));
  std::string content;
  SHOAL_RETURN_IF_ERROR(Ask(
      v1::ModelFile_Name(request.file()), [](const Source&) { return true; },
      [&](Source& source) -> absl::Status {
        SHOAL_ASSIGN_OR_RETURN(content, source.client->FetchModel(request, size_bytes, stop_));
        return Broken(check(content));
      }));
  return content;
}

absl::StatusOr<std::string> RemoteSource::ReadCodebooks() {
  if (manifest_.codebooks_sha256.empty()) {
    return std::string();
  }
  const uint64_t size = manifest_.banks.size() * sizeof(LayerCodebooks);
  return FetchFile(v1::MODEL_FILE_CODEBOOKS, 0, size, [this](const std::string& content) {
    return CompareDigest(Sha256::Of(content), manifest_.codebooks_sha256,
                         absl::StrCat("its ", kCodebooksFile));
  });
}

absl::StatusOr<std::string> RemoteSource::ReadLeaves(const BankEntry& bank) {
  TakeBackThoseLeftOut();
  return FetchFile(v1::MODEL_FILE_TREE, bank.layer, LeavesBytes(manifest_),
                   [&](const std::string& content) {
                     return CheckLeaves(content, manifest_, bank,
                                        absl::StrCat("its ", BankTreeFile(bank.layer)));
                   });
}

absl::Status RemoteSource::ReadUnits(int64_t layer, const ExpertSlice& slice,
                                     absl::string_view leaves, OnUnit on_unit) {
  TakeBackThoseLeftOut();
  const uint64_t unit_bytes = manifest_.unit_layout.unit_bytes;
  const uint64_t expert_bytes = static_cast<uint64_t>(slice.units.size()) * unit_bytes;
  const auto step = static_cast<int64_t>(std::clamp<uint64_t>(
      options_.block_bytes / expert_bytes, 1, static_cast<uint64_t>(slice.experts.size())));
  if (const uint64_t needed = static_cast<uint64_t>(step) * expert_bytes;
      buffer_.size_bytes() < needed) {
    SHOAL_ASSIGN_OR_RETURN(buffer_, AlignedBuffer::Allocate(needed));
  }
  for (int64_t begin = slice.experts.begin; begin < slice.experts.end; begin += step) {
    Block block{
        layer, {slice.units, {begin, std::min(begin + step, slice.experts.end)}}, leaves, {}};
    block.bytes =
        buffer_.bytes().first(static_cast<uint64_t>(block.slice.experts.size()) * expert_bytes);
    SHOAL_RETURN_IF_ERROR(FetchBlock(block));
    std::span<const std::byte> rest = block.bytes;
    for (int64_t expert = begin; expert < block.slice.experts.end; ++expert) {
      for (int64_t unit = slice.units.begin; unit < slice.units.end; ++unit) {
        SHOAL_RETURN_IF_ERROR(on_unit({layer, expert}, unit, rest.first(unit_bytes)));
        rest = rest.subspan(unit_bytes);
      }
    }
  }
  return absl::OkStatus();
}

// From one source what it holds of the block, the rest from others.
absl::Status RemoteSource::FetchBlock(const Block& block) {
  std::vector<ExpertSlice> parts = {block.slice};
  while (!parts.empty()) {
    const ExpertSlice part = parts.back();
    parts.pop_back();
    ExpertSlice got;
    SHOAL_RETURN_IF_ERROR(Ask(
        absl::StrCat("layer ", block.layer, " ", FormatSlice(part)),
        [&](const Source& source) { return HeldOf(source.held, part).has_value(); },
        [&](Source& source) {
          got = *HeldOf(source.held, part);
          return FetchPart(source, block, got);
        }));
    for (const ExpertSlice& rest : Uncovered(part, {&got, 1})) {
      parts.push_back(rest);
    }
  }
  return absl::OkStatus();
}

absl::Status RemoteSource::FetchPart(Source& source, const Block& block, const ExpertSlice& part) {
  const UnitLayout& layout = manifest_.unit_layout;
  v1::FetchUnitsRequest request;
  *request.mutable_terms() = *terms_;
  request.set_layer(static_cast<uint32_t>(block.layer));
  ToMessage(part, request.mutable_slice());
  request.set_grant(options_.grant);
  const ExpertSlice& whole = block.slice;
  const auto units_of_expert = static_cast<uint64_t>(whole.units.size());
  return source.client->FetchUnits(
      request, static_cast<uint64_t>(part.units.size()) * layout.unit_bytes,
      [&](int64_t expert, absl::string_view units) -> absl::Status {
        auto from = std::as_bytes(std::span(units.data(), units.size()));
        for (int64_t unit = part.units.begin; unit < part.units.end; ++unit) {
          const auto bytes = from.first(layout.unit_bytes);
          SHOAL_RETURN_IF_ERROR(Broken(CheckUnitDigest(layout, {block.layer, expert}, unit, bytes,
                                                       block.leaves, source.address)));
          const uint64_t place =
              static_cast<uint64_t>(expert - whole.experts.begin) * units_of_expert +
              static_cast<uint64_t>(unit - whole.units.begin);
          std::copy(bytes.begin(), bytes.end(),
                    block.bytes.subspan(place * layout.unit_bytes).begin());
          from = from.subspan(layout.unit_bytes);
        }
        return absl::OkStatus();
      },
      stop_);
}

}  // namespace shoal

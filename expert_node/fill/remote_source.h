// The content of a partition from other machines, none of which is trusted.
#ifndef SHOAL_EXPERT_NODE_FILL_REMOTE_SOURCE_H_
#define SHOAL_EXPERT_NODE_FILL_REMOTE_SOURCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/container/partition_source.h"
#include "common/io/aligned_buffer.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

namespace v1 {
class Terms;
}  // namespace v1

// Services that hold units (shoal.v1.ExpertNode): nodes, or a coordinator with its container. For
// each part that is wanted the first of them that holds it is asked, and after an error the next.
// One that cannot be reached, or sends something else than it was asked for, is asked for nothing
// more; one that says that a record of its own is damaged is left out until the next bank; one that
// is busy is asked again. Where nobody is left, DATA_LOSS if one of them sent something wrong, else
// UNAVAILABLE: with the part, and why each source was given up.
class RemoteSource final : public PartitionSource {
 public:
  struct Options {
    std::vector<std::string> addresses;  // host:port, in the order in which they are asked
    // What manifest.json must be: the identity does not cover the digests in it.
    std::string manifest_sha256;
    uint64_t block_bytes = uint64_t{16} << 20;    // of units in memory; one expert's at least
    absl::Duration busy_wait = absl::Minutes(1);  // for sources that are busy, without an answer
    // Gets a line for people when a source is given up.
    std::function<void(absl::string_view)> on_note = [](absl::string_view /*line*/) {};
    SecurityPtr own = {};  // as ChannelSecurity's
    std::string grant;     // for the sources, from who asked for this; empty without TLS
  };

  // Asks every source what it holds, and fetches the manifest. `stop` ends this and every later
  // call with CANCELLED.
  //   FAILED_PRECONDITION  the manifest has other terms; names the field and both values
  //   and ParseManifest's errors
  static absl::StatusOr<std::unique_ptr<RemoteSource>> Connect(const v1::Terms& terms,
                                                               Options options,
                                                               std::stop_token stop);
  ~RemoteSource() override;

  // UNAVAILABLE where a part of `wanted`, which is inside the model, is held by no source.
  absl::Status CheckCovers(std::span<const ExpertSlice> wanted) const;

  const Manifest& manifest() const override { return manifest_; }
  absl::StatusOr<std::string> ReadManifestText() override { return manifest_text_; }
  const std::string& config_json() const override { return config_json_; }
  absl::StatusOr<std::string> ReadCodebooks() override;
  absl::StatusOr<std::string> ReadLeaves(const BankEntry& bank) override;
  absl::Status ReadUnits(int64_t layer, const ExpertSlice& slice, absl::string_view leaves,
                         OnUnit on_unit) override;

 private:
  struct Source;
  struct Block;
  using Can = absl::FunctionRef<bool(const Source&)>;
  using AskOne = absl::FunctionRef<absl::Status(Source&)>;

  RemoteSource(const v1::Terms& terms, Options options, std::stop_token stop);
  ChannelSecurity Way() const;
  absl::Status DescribeAll();
  absl::Status FetchManifest();
  absl::Status FetchManifestFrom(Source& source);
  absl::Status TakeHoldings();
  // Asks one source after the other of those that can, until one has given it.
  absl::Status Ask(const std::string& what, Can can, AskOne ask);
  // True where every source that can give it, of those that are left, is busy.
  absl::StatusOr<bool> AskOnce(Can can, AskOne ask, bool* done);
  void TakeBackThoseLeftOut();
  void GiveUp(Source& source, const absl::Status& why);
  absl::Status CheckStop() const;
  absl::Status NobodyLeft(const std::string& what, Can can) const;
  absl::StatusOr<std::string> FetchFile(int file, int64_t layer, uint64_t size_bytes,
                                        absl::FunctionRef<absl::Status(const std::string&)> check);
  absl::Status FetchBlock(const Block& block);
  absl::Status FetchPart(Source& source, const Block& block, const ExpertSlice& part);

  const std::unique_ptr<const v1::Terms> terms_;
  const Options options_;
  const std::stop_token stop_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::string manifest_text_;
  std::string config_json_;
  Manifest manifest_;
  AlignedBuffer buffer_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_FILL_REMOTE_SOURCE_H_

// A node for tests that is like any other, but flips a bit in one of so many answers.
//
//   lying_node DIR NAME PERIOD
//
// It serves all of a partition or container on a free port of the loopback device, says where in a line of JSON, and
// ends with a signal.
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "common/net/address.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "common/sync/thread_pool.h"
#include "expert_node/local_expert_backend.h"
#include "expert_node/node_experts.h"
#include "expert_node/service/held_units.h"
#include "expert_node/service/listen_address.h"
#include "expert_node/service/node_server.h"
#include "expert_node/service/node_service.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/types.pb.h"

namespace shoal {
namespace {

constexpr int64_t kCacheRecords = 64;

class LyingBackend final : public ExpertBackend {
 public:
  LyingBackend(ExpertBackend& truth, int64_t period) : truth_(truth), period_(period) {}

  absl::Status Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                       std::stop_token stop, std::span<int64_t> out) override {
    SHOAL_RETURN_IF_ERROR(truth_.Execute(batch, slices, std::move(stop), out));
    // Of the first sum, worth 2^10: enough to change what the model says.
    constexpr int kBit = 46;
    if (++calls_ % period_ == 0) {
      out[0] ^= int64_t{1} << kBit;
    }
    return absl::OkStatus();
  }
  std::vector<ExpertLayerStats> Stats() const override { return truth_.Stats(); }

 private:
  ExpertBackend& truth_;
  const int64_t period_;
  std::atomic<int64_t> calls_{0};
};

absl::Status Serve(const std::string& directory, const std::string& name, int64_t period) {
  SHOAL_ASSIGN_OR_RETURN(const NodeExperts experts, OpenNodeExperts(directory));
  ThreadPool pool(1);
  LocalExpertBackend::Options backend_options;
  backend_options.cache_records = kCacheRecords;
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<LocalExpertBackend> local,
                         LocalExpertBackend::Open(experts.model, experts.slices, backend_options,
                                                  pool, Clock::Real()));
  LyingBackend backend(*local, period);
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<HeldUnits> units,
                         HeldUnits::Open(experts.model.layout, experts.slices));
  NodeService::Options options;
  options.name = name;
  options.directory = directory;
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeService> service,
                         NodeService::Create(backend, experts.model, MakeTerms(experts.manifest),
                                             *units, options, Clock::Real()));
  SHOAL_ASSIGN_OR_RETURN(const NetAddress any, ParseListenAddress("127.0.0.1:0"));
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeServer> server,
                         NodeServer::Start(*service, any));
  std::puts(nlohmann::json({{"listening_on", server->address().ToString()}, {"name", name}})
                .dump()
                .c_str());
  std::fflush(stdout);
  while (true) {
    ::pause();
  }
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  int64_t period = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[3], &period) || period < 1) {
    std::fputs("lying_node DIR NAME PERIOD\n", stderr);
    return 2;
  }
  const absl::Status status = shoal::Serve(argv[1], argv[2], period);
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

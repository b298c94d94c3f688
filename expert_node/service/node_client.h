// A node as programs see it that ask or copy: calls that block.
#ifndef SHOAL_EXPERT_NODE_SERVICE_NODE_CLIENT_H_
#define SHOAL_EXPERT_NODE_SERVICE_NODE_CLIENT_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

namespace v1 {
class DescribeReply;
class DrillRequest;
class FetchModelRequest;
class FetchUnitsRequest;
class FillProgress;
class FillRequest;
}  // namespace v1

// Thread-safe. Beside the errors a function names, every call can end with what the node answers,
// with UNAVAILABLE where there is no connection or no answer in time (which is 30 s, and a second
// more for each megabyte that is asked for), and with CANCELLED where `stop` came. Errors do not
// name the node.
class NodeClient {
 public:
  // Connects at the first call. A message of more than `max_message_bytes` ends a call with
  // INVALID_ARGUMENT: RESOURCE_EXHAUSTED comes only from a node that is busy.
  NodeClient(const std::string& address, uint64_t max_message_bytes,
             const ChannelSecurity& security);
  ~NodeClient();
  NodeClient(const NodeClient&) = delete;
  NodeClient& operator=(const NodeClient&) = delete;

  // UNAVAILABLE after 5 s already.
  absl::StatusOr<v1::DescribeReply> Describe(std::stop_token stop = {});

  // The whole file. INVALID_ARGUMENT where the node sends more than `max_bytes`, or a message
  // without content.
  absl::StatusOr<std::string> FetchModel(const v1::FetchModelRequest& request, uint64_t max_bytes,
                                         std::stop_token stop);

  // Hands over each expert of the request's slice, `expert_bytes` of units, in order. An error of
  // `on_units` ends the call and is returned. INVALID_ARGUMENT where the node sends another expert
  // than the next, another number of bytes, or more or fewer experts.
  using OnUnits = absl::FunctionRef<absl::Status(int64_t expert, absl::string_view units)>;
  absl::Status FetchUnits(const v1::FetchUnitsRequest& request, uint64_t expert_bytes,
                          OnUnits on_units, std::stop_token stop);

  // Returns when the node has filled itself. Takes as long as it takes: a node that falls silent is
  // noticed by keepalive.
  absl::Status Fill(const v1::FillRequest& request,
                    absl::FunctionRef<void(const v1::FillProgress&)> on_progress,
                    std::stop_token stop);

  // Begins or ends a drill. UNAVAILABLE after 5 s already; UNIMPLEMENTED where the node takes part
  // in none.
  absl::Status Drill(const v1::DrillRequest& request);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_NODE_CLIENT_H_

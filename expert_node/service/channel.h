// The one way in which the programs make channels to each other.
#ifndef SHOAL_EXPERT_NODE_SERVICE_CHANNEL_H_
#define SHOAL_EXPERT_NODE_SERVICE_CHANNEL_H_

#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

namespace grpc {
class Channel;
class ChannelCredentials;
}  // namespace grpc

namespace shoal {

// Never through a proxy: gRPC would take one from the environment (http_proxy and the like), for loopback
// too, and a pool's rows are nobody else's.
std::shared_ptr<grpc::Channel> MakeChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    grpc::ChannelArguments arguments = {});

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_CHANNEL_H_

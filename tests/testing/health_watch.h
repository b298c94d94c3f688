// The health of a gRPC server, watched.
#ifndef SHOAL_TESTS_TESTING_HEALTH_WATCH_H_
#define SHOAL_TESTS_TESTING_HEALTH_WATCH_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/sync_stream.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace shoal::testing {

// A Watch of the standard health service, so that no generated code of it is needed. By the encoding
// rules: field 1 of HealthCheckRequest is the name, field 1 of the response the
// status, 1 SERVING, 2 NOT_SERVING.
class HealthWatch {
 public:
  HealthWatch(const std::string& address, const std::string& name)
      : HealthWatch(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()), name) {}
  HealthWatch(std::shared_ptr<grpc::Channel> channel, const std::string& name)
      : channel_(std::move(channel)),
        method_("/grpc.health.v1.Health/Watch", grpc::internal::RpcMethod::SERVER_STREAMING,
                channel_) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
    const grpc::Slice slice("\x0a" + std::string(1, static_cast<char>(name.size())) + name);
    const grpc::ByteBuffer request(&slice, 1);
    reader_ = std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>>(
        grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(channel_.get(), method_,
                                                                      &context_, request));
  }
  ~HealthWatch() {
    context_.TryCancel();
    if (!ended_) {
      reader_->Finish();
    }
  }
  std::string Next() {
    grpc::ByteBuffer reply;
    grpc::Slice slice;
    EXPECT_TRUE(reader_->Read(&reply) && reply.DumpToSingleSlice(&slice).ok());
    return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
  }
  // Reads until the stream ends.
  grpc::StatusCode End() {
    grpc::ByteBuffer reply;
    while (reader_->Read(&reply)) {
    }
    ended_ = true;
    return reader_->Finish().error_code();
  }

 private:
  grpc::ClientContext context_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::internal::RpcMethod method_;
  std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> reader_;
  bool ended_ = false;
};

}  // namespace shoal::testing

#endif  // SHOAL_TESTS_TESTING_HEALTH_WATCH_H_

#include "tests/coordinator/pool/pool_fixture.h"

#include "expert_node/service/terms.h"
#include "shoal/v1/types.pb.h"

namespace shoal::testing {

void TestNode::Start() {
  NodeService::Options options;
  options.name = name_;
  options.directory = container_.directory();
  options.max_rows = max_rows_;
  options.max_rows_on_reader = 0;
  auto service = NodeService::Create(*backend_, model_, MakeTerms(container_.manifest()), *units_,
                                     options, Clock::Real());
  EXPECT_THAT(service, testing::IsOk());
  service_ = *std::move(service);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address(), grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(&service_->grpc_service());
  builder.SetMaxReceiveMessageSize(static_cast<int>(service_->MaxRequestBytes()));
  server_ = builder.BuildAndStart();
  ASSERT_NE(server_, nullptr) << address();
}

}  // namespace shoal::testing

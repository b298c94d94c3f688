// Continues a text with a model that `shoal serve` has:
//   client 127.0.0.1:7070 "Once upon a time" 64
// The text goes to standard output, everything else to standard error.
#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>
#include <grpcpp/grpcpp.h>
#include <shoal/v1/inference.grpc.pb.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

namespace {

void Show(const shoal::v1::GenerateEvent& event) {
  switch (event.kind_case()) {
    case shoal::v1::GenerateEvent::kQueued:
      std::cerr << "waiting, place " << event.queued().place() << "\n";
      break;
    case shoal::v1::GenerateEvent::kToken:
      std::cout << event.token().text() << std::flush;
      break;
    case shoal::v1::GenerateEvent::kFinished:
      std::cerr << "\n"
                << shoal::v1::FinishReason_Name(event.finished().reason()) << ": "
                << event.finished().generated_tokens() << " tokens\n";
      break;
    default:
      break;  // progress, or a kind that is newer than this program
  }
}

// What an error says to programs: a reason that never changes, a field, when to come again.
void ShowDetails(const grpc::Status& status) {
  google::rpc::Status detailed;
  if (!detailed.ParseFromString(status.error_details())) {
    return;
  }
  for (const google::protobuf::Any& any : detailed.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&info)) {
      std::cerr << "reason " << info.reason() << "\n";
    } else if (any.UnpackTo(&bad) && bad.field_violations_size() > 0) {
      std::cerr << "field " << bad.field_violations(0).field() << "\n";
    } else if (any.UnpackTo(&retry)) {
      std::cerr << "try again in " << retry.retry_delay().seconds() << " s\n";
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "client ADDRESS TEXT MAX_TOKENS\n";
    return 2;
  }
  const auto stub = shoal::v1::Inference::NewStub(
      grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()));
  shoal::v1::GenerateRequest request;
  request.set_text(argv[2]);
  request.mutable_options()->set_max_tokens(
      static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10)));

  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(10));
  const auto reader = stub->Generate(&context, request);
  shoal::v1::GenerateEvent event;
  while (reader->Read(&event)) {
    Show(event);
  }
  const grpc::Status status = reader->Finish();
  if (!status.ok()) {
    std::cerr << "error " << status.error_code() << ": " << status.error_message() << "\n";
    ShowDetails(status);
  }
  return status.ok() ? 0 : 1;
}

// A pool of real gRPC servers on the loopback device, in this process, and the means to make its nodes
// fail.
#ifndef SHOAL_TESTS_COORDINATOR_POOL_POOL_FIXTURE_H_
#define SHOAL_TESTS_COORDINATOR_POOL_POOL_FIXTURE_H_

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/container/container.h"
#include "common/status/status_macros.h"
#include "common/sync/mutex.h"
#include "common/sync/thread_pool.h"
#include "coordinator/convert/converter.h"
#include "coordinator/pool/pool_backend.h"
#include "expert_node/local_expert_backend.h"
#include "expert_node/service/held_units.h"
#include "expert_node/service/node_service.h"
#include "tests/coordinator/convert/small_checkpoint.h"
#include "tests/testing/expert_batch.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal::testing {

constexpr ExpertSlice Experts(int64_t begin, int64_t end) { return {{0, kNumUnits}, {begin, end}}; }

// Calls another backend when it is told to, or fails.
class ControlledBackend final : public ExpertBackend {
 public:
  explicit ControlledBackend(std::unique_ptr<ExpertBackend> real) : real_(std::move(real)) {}

  absl::Status Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                       std::stop_token stop, std::span<int64_t> out) override {
    ++calls_;
    const std::stop_callback wake(stop, [this] { Notify(); });
    {
      MutexLock lock(&mutex_);
      while (blocked_ && !stop.stop_requested()) {
        changed_.Wait(&mutex_);
      }
      if (!error_.ok()) {
        return error_;
      }
    }
    SHOAL_RETURN_IF_ERROR(real_->Execute(batch, slices, stop, out));
    const int64_t period = lie_period_;
    if (period > 0 && calls_ % period == 0) {
      out[kWrongSum] ^= int64_t{1} << kWrongBit;
    }
    return absl::OkStatus();
  }
  std::vector<ExpertLayerStats> Stats() const override { return real_->Stats(); }

  void Block(bool blocked) {
    MutexLock lock(&mutex_);
    blocked_ = blocked;
    changed_.NotifyAll();
  }
  void FailWith(absl::Status error) {
    MutexLock lock(&mutex_);
    error_ = std::move(error);
  }
  // In every `period`-th call one sum, kWrongSum, is wrong in one bit, worth 2^8; 0: in none.
  void LieEvery(int64_t period) { lie_period_ = period; }
  int calls() const { return calls_; }

  static constexpr size_t kWrongSum = 3;
  static constexpr int kWrongBit = 44;

 private:
  void Notify() {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
  }

  const std::unique_ptr<ExpertBackend> real_;
  std::atomic<int> calls_{0};
  std::atomic<int64_t> lie_period_{0};
  Mutex mutex_;
  CondVar changed_;
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

inline std::vector<SliceSource> Sources(const Container& container,
                                        const std::vector<ExpertSlice>& slices) {
  std::vector<SliceSource> sources;
  for (const ExpertSlice& slice : slices) {
    sources.push_back(SliceOfContainer(container, slice));
  }
  return sources;
}

// A node of slices of a container: everything shoal-node has, in this process.
class TestNode {
 public:
  TestNode(const Container& container, std::string name, std::vector<ExpertSlice> slices)
      : container_(container), name_(std::move(name)), slices_(std::move(slices)), pool_(1) {
    LocalExpertBackend::Options options;
    options.cache_records = kPerToken * std::ssize(slices_);
    auto model = ExpertModel::FromContainer(container);
    EXPECT_THAT(model, testing::IsOk());
    model_ = *std::move(model);
    auto real = LocalExpertBackend::Open(model_, Sources(container, slices_), options, pool_,
                                         Clock::Real());
    EXPECT_THAT(real, testing::IsOk());
    backend_ = std::make_unique<ControlledBackend>(*std::move(real));
    auto units = HeldUnits::Open(model_.layout, Sources(container, slices_));
    EXPECT_THAT(units, testing::IsOk());
    units_ = *std::move(units);
    Start();
  }
  ~TestNode() { Kill(); }
  TestNode(const TestNode&) = delete;
  TestNode& operator=(const TestNode&) = delete;

  // On the port of the first start.
  void Start();
  // Cuts every stream at once, as a power cut does.
  void Kill() {
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now());
      server_->Wait();
      server_.reset();
      service_.reset();
    }
  }

  int port() const { return port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  const std::string& name() const { return name_; }
  ControlledBackend& backend() { return *backend_; }
  // From the next start on.
  void Rename(std::string name) { name_ = std::move(name); }
  void TakeRows(int64_t max_rows) { max_rows_ = max_rows; }

 private:
  const Container& container_;
  std::string name_;
  int64_t max_rows_ = 4;  // so that batches are cut
  const std::vector<ExpertSlice> slices_;
  ThreadPool pool_;
  ExpertModel model_;
  std::unique_ptr<ControlledBackend> backend_;
  std::unique_ptr<HeldUnits> units_;
  std::unique_ptr<NodeService> service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

class PoolTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir();
    SmallCheckpoint().WriteTo(*dir_ / "checkpoint");
    SHOAL_ASSERT_OK(Convert(*dir_ / "checkpoint", *dir_ / "model", {}, nullptr, {}));
  }
  static void TearDownTestSuite() { delete std::exchange(dir_, nullptr); }

  void SetUp() override {
    auto container = Container::Open(*dir_ / "model");
    ASSERT_THAT(container, testing::IsOk());
    container_ = *std::move(container);
    batch_ = MakeBatch(6);
    expected_.resize(batch_.rows.size());
    const auto local = Local();
    SHOAL_ASSERT_OK(local->Execute(batch_.View(), {&kWhole, 1}, {}, expected_));
  }

  std::unique_ptr<ExpertBackend> Local() {
    LocalExpertBackend::Options options;
    options.cache_records = kNumExperts;
    auto local = LocalExpertBackend::Open(*container_, options, pool_, Clock::Real());
    EXPECT_THAT(local, testing::IsOk());
    return *std::move(local);
  }

  TestNode& AddNode(const std::string& name, std::vector<ExpertSlice> slices) {
    nodes_.push_back(std::make_unique<TestNode>(*container_, name, std::move(slices)));
    options_.plan.nodes.push_back({"", nodes_.back()->address()});
    return *nodes_.back();
  }

  absl::StatusOr<std::unique_ptr<PoolBackend>> Open(
      std::unique_ptr<ExpertBackend> local = nullptr) {
    return PoolBackend::Open(container_->manifest(), options_, std::move(local), Clock::Real());
  }
  void Connect(std::unique_ptr<ExpertBackend> local = nullptr) {
    auto pool = Open(std::move(local));
    ASSERT_THAT(pool, testing::IsOk());
    backend_ = *std::move(pool);
  }

  // A plan of the nodes that were added, each with what it computes.
  PoolPlan PlanOf(const std::vector<std::vector<ExpertSlice>>& slices, uint64_t epoch) const {
    PoolPlan plan{container_->manifest().identity, epoch, {}};
    for (size_t i = 0; i < slices.size(); ++i) {
      plan.nodes.push_back({nodes_[i]->name(), nodes_[i]->address(), slices[i]});
    }
    return plan;
  }

  absl::Status Execute(std::vector<int64_t>& out) {
    out.assign(batch_.rows.size(), 0);
    return backend_->Execute(batch_.View(), {&kWhole, 1}, {}, out);
  }
  void ExpectTheSameBits() {
    std::vector<int64_t> out;
    SHOAL_ASSERT_OK(Execute(out));
    EXPECT_EQ(out, expected_);
  }
  PoolNodeStatus StatusOf(size_t node) { return backend_->Nodes()[node]; }
  // A machine that is busy with other things is late at times, and a node under suspicion for it.
  void AwaitLive(size_t node) {
    for (int i = 0; i < 6000 && StatusOf(node).state != NodeState::kLive; ++i) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    ASSERT_EQ(StatusOf(node).state, NodeState::kLive);
  }
  // Parts of experts that the node has computed.
  int64_t PartsOf(size_t node) {
    const NodeWork work = StatusOf(node).work;
    return work.expert_hits + work.expert_misses;
  }

  static inline TempDir* dir_ = nullptr;
  std::unique_ptr<Container> container_;
  ThreadPool pool_{2};
  TestBatch batch_;
  std::vector<int64_t> expected_;
  PoolOptions options_;
  std::vector<std::unique_ptr<TestNode>> nodes_;
  std::unique_ptr<PoolBackend> backend_;  // gone before the nodes are
};

}  // namespace shoal::testing

#endif  // SHOAL_TESTS_COORDINATOR_POOL_POOL_FIXTURE_H_

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/container/container.h"
#include "common/container/staging_directory.h"
#include "common/io/aligned_buffer.h"
#include "common/io/file.h"
#include "common/model/tensor_names.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "coordinator/convert/converter.h"
#include "coordinator/convert/source_model.h"
#include "coordinator/convert/unit_codec.h"
#include "kernels/matvec.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr char kModelFile[] = "model.safetensors";

// Files of the checkpoint besides the model, copied from the container.
std::vector<std::string> CopiedNames(const Container& container) {
  std::vector<std::string> names;
  for (const char* name : kCopiedFiles) {
    if (container.manifest().FindFile(name) != nullptr) {
      names.emplace_back(name);
    }
  }
  return names;
}

class Dequantizer {
 public:
  Dequantizer(const Container& container,
              const std::function<void(const ConvertProgress&)>& on_progress, std::stop_token stop)
      : container_(container),
        config_(container.config()),
        trunk_(TrunkTensors(config_)),
        on_progress_(on_progress),
        stop_(std::move(stop)) {}

  // What the safetensors file will hold, in the order in which Write appends it.
  std::vector<TensorSpec> Specs() {
    std::vector<TensorSpec> specs;
    const auto add = [&](const std::string& name, std::vector<uint64_t> shape) {
      progress_.source_bytes_total += NumElements(shape) * sizeof(float);
      specs.push_back({name, DType::kF32, std::move(shape)});
    };
    for (const TrunkTensor& tensor : trunk_) {
      if (tensor.role != TrunkRole::kValueUpProj) {  // comes with its other half
        add(tensor.source_name, tensor.source_shape);
      }
    }
    const auto hidden = static_cast<uint64_t>(config_.hidden_size);
    const auto intermediate = static_cast<uint64_t>(config_.moe.moe_intermediate_size);
    for (const int64_t layer : config_.moe_layers()) {
      for (int64_t expert = 0; expert < config_.moe.num_experts; ++expert) {
        const ExpertTensorNames names = ExpertTensors(config_, layer, expert);
        add(names.gate, {intermediate, hidden});
        add(names.up, {intermediate, hidden});
        add(names.down, {hidden, intermediate});
      }
    }
    return specs;
  }

  uint64_t total_bytes() const { return progress_.source_bytes_total; }

  absl::Status Write(SafetensorsWriter& writer) {
    for (size_t i = 0; i < trunk_.size(); ++i) {
      if (trunk_[i].role == TrunkRole::kValueUpProj) {
        continue;
      }
      SHOAL_ASSIGN_OR_RETURN(std::vector<float> weights, ReadTrunk(trunk_[i]));
      if (trunk_[i].role == TrunkRole::kKeyUpProj) {
        SHOAL_ASSIGN_OR_RETURN(const std::vector<float> values, ReadTrunk(ValueHalfOf(trunk_[i])));
        weights = JoinHalves(weights, values);
      }
      SHOAL_RETURN_IF_ERROR(Append(writer, weights, trunk_[i].source_name));
    }
    SHOAL_ASSIGN_OR_RETURN(const std::vector<LayerCodebooks> books, container_.ReadCodebooks());
    const std::vector<int64_t> layers = config_.moe_layers();
    for (size_t i = 0; i < layers.size(); ++i) {
      SHOAL_RETURN_IF_ERROR(
          WriteLayer(writer, layers[i], books.empty() ? LayerCodebooks{} : books[i]));
    }
    return writer.Finish();
  }

 private:
  absl::StatusOr<std::vector<float>> ReadTrunk(const TrunkTensor& tensor) const {
    const TrunkEntry* entry = container_.manifest().FindTrunk(tensor.name);
    if (entry == nullptr) {
      return absl::DataLossError(
          absl::StrCat(container_.directory(), ": the manifest has no trunk tensor ", tensor.name));
    }
    SHOAL_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::Allocate(entry->size_bytes));
    SHOAL_RETURN_IF_ERROR(
        container_.ReadTrunkTensor(*entry, buffer.bytes().first(entry->size_bytes)));
    Matrix matrix;
    matrix.type = entry->type;
    matrix.cols = static_cast<int64_t>(entry->shape.back());
    matrix.rows = static_cast<int64_t>(NumElements(entry->shape) / entry->shape.back());
    matrix.values = buffer.data();
    if (entry->scales_offset_bytes != 0) {
      matrix.scales = reinterpret_cast<const uint16_t*>(buffer.data() + entry->scales_offset_bytes);
    }
    std::vector<float> weights(NumElements(entry->shape));
    for (int64_t row = 0; row < matrix.rows; ++row) {
      DequantizeRow(matrix, row, std::span(weights).subspan(row * matrix.cols, matrix.cols));
    }
    return weights;
  }

  const TrunkTensor& ValueHalfOf(const TrunkTensor& key) const {
    return *std::find_if(trunk_.begin(), trunk_.end(), [&key](const TrunkTensor& tensor) {
      return tensor.role == TrunkRole::kValueUpProj && tensor.source_name == key.source_name;
    });
  }

  // kv_b_proj: for each head, qk_nope_head_dim rows of K (stored transposed), then v_head_dim rows
  // of V.
  std::vector<float> JoinHalves(const std::vector<float>& keys,
                                const std::vector<float>& values) const {
    const MlaConfig& mla = config_.mla;
    const int64_t rank = mla.kv_lora_rank;
    std::vector<float> joined;
    joined.reserve(keys.size() + values.size());
    for (int64_t head = 0; head < mla.num_heads; ++head) {
      for (int64_t i = 0; i < mla.qk_nope_head_dim; ++i) {
        for (int64_t j = 0; j < rank; ++j) {
          joined.push_back(keys[(head * rank + j) * mla.qk_nope_head_dim + i]);
        }
      }
      const auto first = values.begin() + head * mla.v_head_dim * rank;
      joined.insert(joined.end(), first, first + mla.v_head_dim * rank);
    }
    return joined;
  }

  absl::Status WriteLayer(SafetensorsWriter& writer, int64_t layer, const LayerCodebooks& books) {
    const UnitLayout& layout = container_.manifest().unit_layout;
    const std::string path = container_.PathOf(BankFile(layer));
    SHOAL_ASSIGN_OR_RETURN(const UniqueFd bank, OpenForRead(path));
    SHOAL_ASSIGN_OR_RETURN(AlignedBuffer record, AlignedBuffer::Allocate(layout.record_bytes));
    const std::unique_ptr<UnitCodec> codec =
        MakeUnitCodec(layout, {books, {}}, container_.manifest().settings.seed);
    ExpertWeights weights = ExpertWeights::Sized(layout);
    for (int64_t expert = 0; expert < config_.moe.num_experts; ++expert) {
      const uint64_t offset = expert * layout.record_bytes;
      SHOAL_RETURN_IF_ERROR(ReadExactAt(bank, path, offset, record.bytes()));
      for (int64_t unit_index = 0; unit_index < layout.num_units; ++unit_index) {
        const auto unit = record.bytes().subspan(unit_index * layout.unit_bytes, layout.unit_bytes);
        SHOAL_RETURN_IF_ERROR(Annotate(CheckUnit(layout, {layer, expert}, unit_index, unit), path));
        codec->DecodeUnit(unit_index, unit, weights);
      }
      for (const std::vector<float>& matrix : weights.matrices) {
        SHOAL_RETURN_IF_ERROR(Append(writer, matrix, absl::StrCat("layer ", layer, " experts")));
      }
      DropPageCache(bank, offset, layout.record_bytes);
    }
    return absl::OkStatus();
  }

  absl::Status Append(SafetensorsWriter& writer, const std::vector<float>& weights,
                      const std::string& step) {
    SHOAL_RETURN_IF_ERROR(writer.AppendFloat(weights));
    progress_.step = step;
    progress_.source_bytes_done += weights.size() * sizeof(float);
    if (on_progress_) {
      on_progress_(progress_);
    }
    return stop_.stop_requested() ? absl::CancelledError("stopped; nothing was written")
                                  : absl::OkStatus();
  }

  const Container& container_;
  const ModelConfig& config_;
  const std::vector<TrunkTensor> trunk_;
  const std::function<void(const ConvertProgress&)>& on_progress_;
  const std::stop_token stop_;
  ConvertProgress progress_;
};

// Empties the place where the checkpoint is made of what an earlier run left there; refuses to
// remove anything else.
absl::Status ClearWork(const std::string& work, const std::vector<std::string>& expected) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(work));
  for (const std::string& name : names) {
    const std::string base = name.substr(0, name.find(".tmp"));
    if (base != kModelFile && std::find(expected.begin(), expected.end(), base) == expected.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat(work, " is needed for the unfinished checkpoint but holds ", name,
                       "; remove or rename it"));
    }
    std::error_code error;
    fs::remove(absl::StrCat(work, "/", name), error);
    if (error) {
      return ErrnoToStatus(error.value(), absl::StrCat("remove ", work, "/", name));
    }
  }
  return absl::OkStatus();
}

absl::Status WriteCheckpoint(const Container& container, Dequantizer& dequantizer,
                             const std::string& work) {
  std::vector<TensorSpec> specs = dequantizer.Specs();
  SHOAL_ASSIGN_OR_RETURN(const uint64_t free, FreeDiskBytes(work));
  if (dequantizer.total_bytes() > free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the checkpoint needs ", dequantizer.total_bytes(),
                     " bytes of disk, the file system of ", work, " has ", free, " free"));
  }
  SHOAL_ASSIGN_OR_RETURN(
      const auto writer,
      SafetensorsWriter::Create(absl::StrCat(work, "/", kModelFile), std::move(specs)));
  SHOAL_RETURN_IF_ERROR(dequantizer.Write(*writer));
  for (const std::string& name : CopiedNames(container)) {
    SHOAL_ASSIGN_OR_RETURN(const std::string content,
                           ReadTextFile(container.PathOf(name), kMaxCopiedFileBytes));
    SHOAL_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(work, "/", name), content));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Dequantize(const std::string& container, const std::string& directory,
                        const std::function<void(const ConvertProgress&)>& on_progress,
                        std::stop_token stop) {
  const std::string target = WithoutTrailingSlashes(directory);
  std::error_code error;
  if (target.empty() || fs::symlink_status(target, error).type() != fs::file_type::not_found) {
    return absl::AlreadyExistsError(
        absl::StrCat("\"", directory, "\" exists; name a directory that does not"));
  }
  SHOAL_ASSIGN_OR_RETURN(const auto opened, Container::Open(container));
  const std::string work = absl::StrCat(target, ".dequantizing");
  const std::vector<std::string> copied = CopiedNames(*opened);
  SHOAL_ASSIGN_OR_RETURN(const UniqueFd lock, MakeLockedDirectory(work));
  SHOAL_RETURN_IF_ERROR(ClearWork(work, copied));
  Dequantizer dequantizer(*opened, on_progress, std::move(stop));
  absl::Status status = WriteCheckpoint(*opened, dequantizer, work);
  if (status.ok()) {
    return RenameDurably(work, target);
  }
  // The work is short beside a conversion: it is not kept.
  if (ClearWork(work, copied).ok()) {
    fs::remove(work, error);
  }
  return status;
}

}  // namespace shoal

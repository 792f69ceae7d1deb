#include "kernels/registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

absl::string_view NameOf(DType dtype) { return DTypeName(dtype); }
absl::string_view NameOf(Activations activations) { return ActivationsName(activations); }

template <class T>
std::string Names(const std::vector<T>& values) {
  return absl::StrJoin(values, ", ",
                       [](std::string* out, T value) { absl::StrAppend(out, NameOf(value)); });
}

template <class T>
bool Contains(const std::vector<T>& values, T value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// What `entry` misses of `required`; empty when it fits.
std::string Missing(const KernelEntry& entry, const KernelRequirements& required) {
  std::vector<std::string> missing;
  if (!entry.available) missing.push_back(entry.unavailable_reason);
  if (!Contains(entry.weights_dtypes, required.weights_dtype)) {
    missing.push_back(absl::StrCat("weights in ", DTypeName(required.weights_dtype),
                                   " (supported: ", Names(entry.weights_dtypes), ")"));
  }
  if (!Contains(entry.activations, required.activations)) {
    missing.push_back(absl::StrCat("activations in ", ActivationsName(required.activations),
                                   " (supported: ", Names(entry.activations), ")"));
  }
  if (!Contains(entry.kv_dtypes, required.kv_dtype)) {
    missing.push_back(absl::StrCat("keys and values in ", DTypeName(required.kv_dtype),
                                   " (supported: ", Names(entry.kv_dtypes), ")"));
  }
  for (const int dim : {required.k_dim, required.v_dim}) {
    if (dim < 1 || dim > entry.max_head_dim || dim % entry.head_dim_multiple != 0) {
      missing.push_back(absl::StrCat("head_dim ", dim, " (supported: multiples of ",
                                     entry.head_dim_multiple, " up to ", entry.max_head_dim, ")"));
      break;
    }
  }
  return absl::StrJoin(missing, "; ");
}

}  // namespace

absl::StatusOr<PackedMatrix> CreateMatrix(const OpTable& ops, Backend& backend, int64_t out,
                                          int64_t in, DType dtype) {
  ANNULUS_ASSIGN_OR_RETURN(const size_t bytes, ops.matrix_bytes(out, in, dtype));
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer storage, backend.Allocate(bytes));
  return PackedMatrix{out, in, dtype, std::move(storage)};
}

absl::StatusOr<PackedMatrix> PackMatrix(const OpTable& ops, Backend& backend,
                                        const HostTensorView& source, DType dtype,
                                        QuantizationError* error) {
  ANNULUS_ASSIGN_OR_RETURN(PackedMatrix packed,
                           CreateMatrix(ops, backend, source.rows, source.cols, dtype));
  ANNULUS_RETURN_IF_ERROR(ops.pack_rows(packed, 0, source, error));
  return packed;
}

absl::Status Linears(const OpTable& ops, Stream& stream, std::span<const LinearParams> parts) {
  if (ops.linears != nullptr) return ops.linears(stream, parts);
  for (const LinearParams& part : parts) ANNULUS_RETURN_IF_ERROR(ops.linear(stream, part));
  return absl::OkStatus();
}

absl::StatusOr<ExpertMatrices> ListExperts(Backend& backend, Stream& stream,
                                           std::vector<const PackedMatrix*> matrices,
                                           std::vector<const float*> biases) {
  ANNULUS_CHECK(!matrices.empty() && biases.size() == matrices.size());
  const PackedMatrix& first = *matrices.front();
  std::vector<ExpertAddress> addresses;
  for (size_t e = 0; e < matrices.size(); ++e) {
    const PackedMatrix& matrix = *matrices[e];
    ANNULUS_CHECK(matrix.out_features == first.out_features &&
                  matrix.in_features == first.in_features && matrix.dtype == first.dtype)
        << "expert " << e << " differs from the first";
    addresses.push_back({matrix.storage.data(), biases[e]});
  }
  const size_t bytes = addresses.size() * sizeof(ExpertAddress);
  ExpertMatrices listed{std::move(matrices), std::move(biases), {}};
  ANNULUS_ASSIGN_OR_RETURN(listed.addresses, backend.Allocate(bytes));
  ANNULUS_RETURN_IF_ERROR(backend.Copy(stream, listed.addresses.data(), addresses.data(), bytes));
  ANNULUS_RETURN_IF_ERROR(stream.Synchronize());
  return listed;
}

void KernelRegistry::Register(KernelEntry entry) { entries_.push_back(std::move(entry)); }

absl::StatusOr<const OpTable*> KernelRegistry::Select(const KernelRequirements& required) const {
  const KernelEntry* best = nullptr;
  std::string reasons;
  for (const KernelEntry& entry : entries_) {
    if (entry.backend != required.backend) continue;
    if (!required.implementation.empty() && entry.ops.name != required.implementation) continue;
    const std::string missing = Missing(entry, required);
    if (!missing.empty()) {
      absl::StrAppend(&reasons, "; ", entry.ops.name, " misses ", missing);
    } else if (best == nullptr || entry.priority > best->priority) {
      best = &entry;
    }
  }
  if (best != nullptr) return &best->ops;
  return absl::FailedPreconditionError(absl::StrCat(
      "no kernels fit: required are backend ", required.backend,
      required.implementation.empty() ? ""
                                      : absl::StrCat(", implementation ", required.implementation),
      ", weights ", DTypeName(required.weights_dtype), ", activations ",
      ActivationsName(required.activations), ", keys and values ", DTypeName(required.kv_dtype),
      ", head_dim ", required.k_dim, "/", required.v_dim,
      reasons.empty() ? "; no implementation of that name is in this binary" : reasons));
}

std::vector<const OpTable*> KernelRegistry::Available(const std::string& backend) const {
  std::vector<const KernelEntry*> entries;
  for (const KernelEntry& entry : entries_) {
    if (entry.backend == backend && entry.available) entries.push_back(&entry);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const KernelEntry* a, const KernelEntry* b) {
    return a->priority > b->priority;
  });
  std::vector<const OpTable*> tables;
  for (const KernelEntry* entry : entries) tables.push_back(&entry->ops);
  return tables;
}

}  // namespace annulus

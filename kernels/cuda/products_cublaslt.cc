// products.h over cuBLASLt, which is opened at run time. Source of the calls: cuBLAS documentation,
// "Using the cuBLASLt API". The library's matrices lie column by column, so it is asked for the
// transposed product: output^T [out, rows] = weight [out, in] * input^T [in, rows].
#include <cublasLt.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/dynamic_library.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/common/launch_log.h"
#include "kernels/cuda/product_ways.h"
#include "kernels/cuda/products.h"

namespace annulus::cuda {
namespace {

constexpr char kFile[] = "libcublasLt.so.13";
constexpr char kRemedy[] =
    "install cuBLAS of CUDA 13 (Debian and Ubuntu: libcublas-13-0 of NVIDIA's repository) where "
    "the "
    "loader finds it";

// The library's functions, with the types of its own header.
struct CublasLt {
  decltype(cublasLtCreate)* create;
  decltype(cublasLtDestroy)* destroy;
  decltype(cublasLtMatmulDescCreate)* create_product;
  decltype(cublasLtMatmulDescDestroy)* destroy_product;
  decltype(cublasLtMatmulDescSetAttribute)* set_product;
  decltype(cublasLtMatrixLayoutCreate)* create_layout;
  decltype(cublasLtMatrixLayoutDestroy)* destroy_layout;
  decltype(cublasLtMatmulPreferenceCreate)* create_preference;
  decltype(cublasLtMatmulPreferenceDestroy)* destroy_preference;
  decltype(cublasLtMatmulPreferenceSetAttribute)* set_preference;
  decltype(cublasLtMatmulAlgoGetHeuristic)* get_heuristic;
  decltype(cublasLtMatmul)* multiply;
};

absl::StatusOr<CublasLt> LoadCublasLt() {
  ANNULUS_ASSIGN_OR_RETURN(const DynamicLibrary library, DynamicLibrary::Open(kFile, kRemedy));
  CublasLt api;
  ANNULUS_RETURN_IF_ERROR(library.Find("cublasLtCreate", api.create));
  ANNULUS_RETURN_IF_ERROR(library.Find("cublasLtDestroy", api.destroy));
  ANNULUS_RETURN_IF_ERROR(library.Find("cublasLtMatmulDescCreate", api.create_product));
  ANNULUS_RETURN_IF_ERROR(library.Find("cublasLtMatmulDescDestroy", api.destroy_product));
  ANNULUS_RETURN_IF_ERROR(library.Find("cublasLtMatmulDescSetAttribute", api.set_product));
  ANNULUS_RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutCreate", api.create_layout));
  ANNULUS_RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutDestroy", api.destroy_layout));
  ANNULUS_RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceCreate", api.create_preference));
  ANNULUS_RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceDestroy", api.destroy_preference));
  ANNULUS_RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceSetAttribute", api.set_preference));
  ANNULUS_RETURN_IF_ERROR(library.Find("cublasLtMatmulAlgoGetHeuristic", api.get_heuristic));
  ANNULUS_RETURN_IF_ERROR(library.Find("cublasLtMatmul", api.multiply));
  return api;
}

absl::Status StatusOfCublas(cublasStatus_t code, absl::string_view what) {
  if (code == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  if (code == CUBLAS_STATUS_ALLOC_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": the GPU has no memory left for cuBLASLt; lower --kv-memory"));
  }
  return absl::InternalError(
      absl::StrCat(what, ": cuBLASLt refuses with status ", static_cast<int>(code)));
}

cudaDataType_t TypeOf(Factors factors) {
  if (factors == Factors::kFloat8E4M3) return CUDA_R_8F_E4M3;
  return factors == Factors::kFloat16 ? CUDA_R_16F : CUDA_R_16BF;
}

// An object of the library that ends with its owner.
template <class T>
class Owned {
 public:
  explicit Owned(cublasStatus_t (*destroy)(T)) : destroy_(destroy) {}
  ~Owned() {
    if (object_ != nullptr) destroy_(object_);
  }
  Owned(const Owned&) = delete;
  T get() const { return object_; }
  T* out() { return &object_; }

 private:
  cublasStatus_t (*destroy_)(T);
  T object_ = nullptr;
};

// What the library is told of one product: operation, factors, sum.
struct Described {
  explicit Described(const CublasLt& api)
      : product(api.destroy_product),
        weight(api.destroy_layout),
        input(api.destroy_layout),
        output(api.destroy_layout) {}

  Owned<cublasLtMatmulDesc_t> product;
  Owned<cublasLtMatrixLayout_t> weight;
  Owned<cublasLtMatrixLayout_t> input;
  Owned<cublasLtMatrixLayout_t> output;
};

class CublasLtProducts final : public Products {
 public:
  explicit CublasLtProducts(const CublasLt& api) : api_(api), handle_(api.destroy) {}

  absl::Status Start() { return StatusOfCublas(api_.create(handle_.out()), "opening cuBLASLt"); }

  absl::StatusOr<bool> Serves(const Product& product) override {
    ANNULUS_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t* const way, FindWay(product));
    return way != nullptr;
  }

  absl::StatusOr<bool> Multiply(StreamHandle stream, const Product& product,
                                std::byte* workspace) override {
    ANNULUS_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t* const way, FindWay(product));
    ANNULUS_CHECK(way != nullptr) << "a product that the library does not serve";
    Described described(api_);
    ANNULUS_RETURN_IF_ERROR(Describe(product, described));
    const float one = 1;
    const float beta = product.accumulate ? 1 : 0;
    const cublasStatus_t status = api_.multiply(
        handle_.get(), described.product.get(), &one, product.weight, described.weight.get(),
        product.input, described.input.get(), &beta, product.output, described.output.get(),
        product.output, described.output.get(), way, workspace, kWorkspaceBytes,
        static_cast<cudaStream_t>(NativeOf(stream)));
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
      ways_.Drop(KindOf(product));
      return false;
    }
    ANNULUS_RETURN_IF_ERROR(StatusOfCublas(status, "a product"));
    return true;
  }

 private:
  template <class T>
  absl::Status Set(Described& described, cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return StatusOfCublas(
        api_.set_product(described.product.get(), attribute, &value, sizeof(value)),
        "describing a product");
  }

  absl::Status SetScales(const Product& p, Described& described) {
    const int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    ANNULUS_RETURN_IF_ERROR(Set(described, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode));
    ANNULUS_RETURN_IF_ERROR(Set(described, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.weight_scales));
    ANNULUS_RETURN_IF_ERROR(Set(described, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode));
    return Set(described, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.input_scales);
  }

  absl::Status Describe(const Product& p, Described& described) {
    constexpr char kWhat[] = "describing a product";
    ANNULUS_RETURN_IF_ERROR(StatusOfCublas(
        api_.create_product(described.product.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F), kWhat));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    ANNULUS_RETURN_IF_ERROR(Set(described, CUBLASLT_MATMUL_DESC_TRANSA, transposed));
    if (p.bias != nullptr) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      const cudaDataType_t type = CUDA_R_32F;
      ANNULUS_RETURN_IF_ERROR(Set(described, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
      ANNULUS_RETURN_IF_ERROR(Set(described, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type));
      ANNULUS_RETURN_IF_ERROR(Set(described, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias));
    }
    if (p.input_scales != nullptr) ANNULUS_RETURN_IF_ERROR(SetScales(p, described));
    const cudaDataType_t factor = TypeOf(p.factors);
    const auto in = static_cast<uint64_t>(p.in);
    const auto out = static_cast<uint64_t>(p.out);
    const auto rows = static_cast<uint64_t>(p.rows);
    ANNULUS_RETURN_IF_ERROR(StatusOfCublas(
        api_.create_layout(described.weight.out(), factor, in, out, p.depth), kWhat));
    ANNULUS_RETURN_IF_ERROR(StatusOfCublas(
        api_.create_layout(described.input.out(), factor, in, rows, p.depth), kWhat));
    return StatusOfCublas(
        api_.create_layout(described.output.out(), CUDA_R_32F, out, rows, p.stride), kWhat);
  }

  absl::StatusOr<const cublasLtMatmulAlgo_t*> FindWay(const Product& product) {
    const ProductKind kind = KindOf(product);
    return ways_.Find(kind, [&] { return AskForWay(product, kind); });
  }

  absl::Status Prefer(const ProductKind& kind, cublasLtMatmulPreference_t preference) {
    constexpr char kWhat[] = "choosing a product";
    const size_t bytes = kWorkspaceBytes;
    ANNULUS_RETURN_IF_ERROR(
        StatusOfCublas(api_.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &bytes, sizeof(bytes)),
                       kWhat));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      ANNULUS_RETURN_IF_ERROR(
          StatusOfCublas(api_.set_preference(preference, attribute, &kind.output_alignment,
                                             sizeof(kind.output_alignment)),
                         kWhat));
    }
    return absl::OkStatus();
  }

  // None: the library says so by its status (either of two, for scales of rows that its kernels do
  // not take), by no result, or by the status of its result.
  absl::StatusOr<std::optional<cublasLtMatmulAlgo_t>> AskForWay(const Product& product,
                                                                const ProductKind& kind) {
    constexpr char kWhat[] = "choosing a product";
    Described described(api_);
    ANNULUS_RETURN_IF_ERROR(Describe(product, described));
    Owned<cublasLtMatmulPreference_t> preference(api_.destroy_preference);
    ANNULUS_RETURN_IF_ERROR(StatusOfCublas(api_.create_preference(preference.out()), kWhat));
    ANNULUS_RETURN_IF_ERROR(Prefer(kind, preference.get()));
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    const cublasStatus_t status = api_.get_heuristic(
        handle_.get(), described.product.get(), described.weight.get(), described.input.get(),
        described.output.get(), described.output.get(), preference.get(), 1, &result, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
      return std::nullopt;
    }
    ANNULUS_RETURN_IF_ERROR(StatusOfCublas(status, kWhat));
    if (count == 0 || result.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return result.algo;
  }

  const CublasLt api_;
  Owned<cublasLtHandle_t> handle_;
  ProductWays<cublasLtMatmulAlgo_t> ways_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Products>> OpenProducts() {
  ANNULUS_ASSIGN_OR_RETURN(const CublasLt api, LoadCublasLt());
  auto products = std::make_unique<CublasLtProducts>(api);
  ANNULUS_RETURN_IF_ERROR(products->Start());
  return products;
}

}  // namespace annulus::cuda

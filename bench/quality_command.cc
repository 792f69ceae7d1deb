#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/commands.h"
#include "bench/flags.h"
#include "bench/quality/needles.h"
#include "bench/quality/quality.h"
#include "bench/read_tokens.h"
#include "bench/report/progress.h"
#include "bench/report/row.h"
#include "engine/api.h"
#include "engine/loading/loaded_model.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/reference/float8_attention.h"
#include "kernels/cpu/register.h"
#include "kernels/cpu/register_entries.h"

namespace annulus::bench {
namespace {

struct QualityOptions {
  std::string model;
  std::string gates;
  std::vector<std::string> texts;
  std::vector<int32_t> tokens = {2048};
  DType reference = DType::kF32;
  std::vector<DType> weights;
  std::vector<DType> kv;
  std::vector<std::string> attention;
  Activations activations = Activations::kFloat;
  std::string attention_math = "float";
  int threads = 0;
  int page_tokens = 64;
  int needles = 0;
};

constexpr uint64_t kNeedleSeed = 7;
// Of the context, at most: a planted sentence, and question, frame and answer.
constexpr int64_t kNeedleTokens = 64;
constexpr int64_t kQuestionTokens = 512;

// One saving, or several together.
struct Saving {
  DType weights;
  DType kv;
  std::string attention;
};

constexpr char kFloat8Math[] = "fp8";

// Every table of this processor, with attention that multiplies in e4m3, fastest first. Its scalars
// stand for kernels of a GPU; the other ops are as fast as ever.
void RegisterFloat8Kernels(const KernelRegistry& plain, KernelRegistry& registry) {
  const std::vector<const OpTable*> tables = plain.Available("cpu");
  int priority = static_cast<int>(tables.size());
  for (const OpTable* const table : tables) {
    registry.Register(CpuEntry(reference::WithFloat8Attention(*table), --priority));
  }
}

absl::Status CheckAttentionMath(const QualityOptions& options) {
  if (options.attention_math != kFloat8Math) return absl::OkStatus();
  const bool coded = std::all_of(options.kv.begin(), options.kv.end(),
                                 [](DType dtype) { return dtype == DType::kF8E4M3; });
  if (!options.kv.empty() && coded) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--attention-math fp8 multiplies keys and values that are fp8_e4m3; allowed with it: "
      "--kv-dtype fp8_e4m3");
}

// Shares of the needles that are told: with the saving and without.
struct Answers {
  double share = 0;
  double reference = 0;
};

// What --help says: a list changes one thing, everything else as in the reference.
std::vector<Saving> SavingsOf(const QualityOptions& options) {
  std::vector<Saving> savings;
  const Saving none{options.reference, DType::kF32, "dense"};
  const auto add = [&](Saving saving) { savings.push_back(std::move(saving)); };
  for (const DType weights : options.weights) add({weights, none.kv, none.attention});
  for (const DType kv : options.kv) add({none.weights, kv, none.attention});
  for (const std::string& attention : options.attention) add({none.weights, none.kv, attention});
  if (savings.empty()) add(none);
  return savings;
}

class QualityRun {
 public:
  static absl::StatusOr<std::unique_ptr<QualityRun>> Create(const QualityOptions& options,
                                                            BenchContext& context) {
    ANNULUS_RETURN_IF_ERROR(CheckAttentionMath(options));
    ANNULUS_ASSIGN_OR_RETURN(auto backend, CreateCpuBackend());
    std::unique_ptr<QualityRun> run(new QualityRun(options, context, std::move(backend)));
    ANNULUS_ASSIGN_OR_RETURN(LoadedModel reference,
                             run->Load(run->ReferenceSaving(), Activations::kFloat));
    run->reference_ = std::make_unique<LoadedModel>(std::move(reference));
    const int most = *std::max_element(options.tokens.begin(), options.tokens.end());
    ANNULUS_RETURN_IF_ERROR(run->CheckNeedles(most));
    for (const std::string& path : options.texts) {
      ANNULUS_ASSIGN_OR_RETURN(run->texts_.emplace_back(),
                               ReadTokens(path, *run->reference_->tokenizer, most));
      if (static_cast<int>(run->texts_.back().size()) == most) continue;
      return absl::InvalidArgumentError(absl::StrCat(path, " has ", run->texts_.back().size(),
                                                     " tokens and --tokens asks for ", most,
                                                     "; give a longer text or fewer tokens"));
    }
    return run;
  }

  absl::Status Run() {
    const std::vector<Saving> savings = SavingsOf(options_);
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<QualityModel> models, ModelsOf(savings));
    BenchProgress progress(context_.err);
    for (const int32_t tokens : options_.tokens) {
      progress.Plan(Work(static_cast<int64_t>(tokens) * std::ssize(texts_)));
    }
    // By length, then by saving.
    std::vector<std::vector<Quality>> qualities;
    for (const int32_t tokens : options_.tokens) {
      std::vector<Quality>& all = qualities.emplace_back(savings.size());
      for (const std::vector<int32_t>& text : texts_) {
        ANNULUS_ASSIGN_OR_RETURN(
            const std::vector<Quality> of_text,
            CompareQuality({reference_->ranks, {}}, models, *backend_,
                           ThreadsOrAll(options_.threads), std::span(text).first(tokens),
                           [&](int64_t read) { progress.Show(Work(read)); }));
        progress.Done(Work(tokens));
        for (size_t i = 0; i < savings.size(); ++i) all[i].Add(of_text[i]);
      }
    }
    progress.Clear();
    loaded_.clear();  // the engines that are asked for needles load their own
    RowWriter writer(context_.rows);
    for (size_t i = 0; i < savings.size(); ++i) {
      for (size_t length = 0; length < options_.tokens.size(); ++length) {
        const int32_t tokens = options_.tokens[length];
        ANNULUS_ASSIGN_OR_RETURN(const Answers answers, AnswersOf(savings[i], tokens));
        writer.Write(RowOf(savings[i], tokens, qualities[length][i], answers));
      }
    }
    return absl::OkStatus();
  }

 private:
  QualityRun(const QualityOptions& options, BenchContext& context, std::unique_ptr<Backend> backend)
      : options_(options), context_(context), backend_(std::move(backend)) {
    RegisterCpuKernels(kernels_);
    RegisterFloat8Kernels(kernels_, float8_kernels_);
  }

  const KernelRegistry& KernelsOf(const Saving& saving) const {
    const bool float8 = options_.attention_math == kFloat8Math && saving.kv == DType::kF8E4M3;
    return float8 ? float8_kernels_ : kernels_;
  }

  static BenchProgress::Work Work(int64_t tokens) {
    return {.tokens = tokens, .operations = static_cast<double>(tokens)};
  }

  Saving ReferenceSaving() const { return {options_.reference, DType::kF32, "dense"}; }

  EngineOptions OptionsOf(const Saving& saving, Activations activations) const {
    EngineOptions engine;
    engine.model = options_.model;
    engine.page_tokens = options_.page_tokens;
    engine.threads = options_.threads;
    engine.weights_dtype = saving.weights;
    engine.kv_dtype = saving.kv;
    engine.activations = activations;
    engine.attention_gates = options_.gates;
    return engine;
  }

  absl::StatusOr<LoadedModel> Load(const Saving& saving, Activations activations) {
    return LoadModel(OptionsOf(saving, activations), *backend_, KernelsOf(saving));
  }

  // The models of the savings, which share what is loaded alike.
  absl::StatusOr<std::vector<QualityModel>> ModelsOf(const std::vector<Saving>& savings) {
    std::vector<QualityModel> models;
    for (const Saving& saving : savings) {
      ANNULUS_ASSIGN_OR_RETURN(AttentionAssignment attention, ParseAssignment(saving.attention));
      const LoadedModel* model = reference_.get();
      if (saving.weights != options_.reference || saving.kv != DType::kF32 ||
          options_.activations != Activations::kFloat) {
        std::unique_ptr<LoadedModel>& loaded = loaded_[{saving.weights, saving.kv}];
        if (loaded == nullptr) {
          ANNULUS_ASSIGN_OR_RETURN(LoadedModel fresh, Load(saving, options_.activations));
          loaded = std::make_unique<LoadedModel>(std::move(fresh));
        }
        model = loaded.get();
      }
      models.push_back({model->ranks, std::move(attention)});
    }
    return models;
  }

  // `most`: the longest text.
  absl::Status CheckNeedles(int most) const {
    const int64_t needed = most + options_.needles * kNeedleTokens + kQuestionTokens;
    const int64_t context = reference_->info.max_context;
    if (options_.needles == 0 || needed <= context) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "--tokens ", most, " with ", options_.needles, " needles and their questions takes up to ",
        needed, " tokens and the context is ", context, "; ask for fewer tokens or needles"));
  }

  // Share of the needles that the model tells, over all texts.
  absl::StatusOr<double> Answered(const Saving& saving, Activations activations, int32_t tokens) {
    EngineOptions options = OptionsOf(saving, activations);
    ANNULUS_ASSIGN_OR_RETURN(options.attention, ParseAssignment(saving.attention));
    ANNULUS_ASSIGN_OR_RETURN(const auto engine,
                             CreateEngine(options, *backend_, KernelsOf(saving)));
    const std::vector<Needle> needles = MakeNeedles(options_.needles, kNeedleSeed);
    int right = 0;
    for (const std::vector<int32_t>& ids : texts_) {
      ANNULUS_ASSIGN_OR_RETURN(const std::string text,
                               engine->Detokenize(std::span(ids).first(tokens),
                                                  /*skip_special=*/true, CancelFlag::Never()));
      ANNULUS_ASSIGN_OR_RETURN(const int of_text,
                               CountAnswered(*engine, PlantNeedles(text, needles), needles));
      right += of_text;
    }
    return static_cast<double>(right) /
           static_cast<double>(std::ssize(needles) * std::ssize(texts_));
  }

  absl::StatusOr<Answers> AnswersOf(const Saving& saving, int32_t tokens) {
    Answers answers;
    if (options_.needles == 0) return answers;
    if (!reference_answered_.contains(tokens)) {
      ANNULUS_ASSIGN_OR_RETURN(reference_answered_[tokens],
                               Answered(ReferenceSaving(), Activations::kFloat, tokens));
    }
    answers.reference = reference_answered_[tokens];
    ANNULUS_ASSIGN_OR_RETURN(answers.share, Answered(saving, options_.activations, tokens));
    return answers;
  }

  Row RowOf(const Saving& saving, int32_t tokens, const Quality& quality,
            const Answers& answers) const {
    const NextTokens& next = quality.next;
    Row row;
    row.Text("weights", DTypeName(saving.weights));
    row.Text("activations", ActivationsName(options_.activations));
    row.Text("kv", DTypeName(saving.kv));
    if (options_.attention_math == kFloat8Math) row.Text("attention_math", kFloat8Math);
    row.Text("attention", saving.attention).Int("tokens", tokens);
    row.Number("perplexity", next.perplexity()).Number("reference", next.reference_perplexity());
    row.Number("divergence", next.mean_divergence());
    row.Number("divergence_p99", next.high_divergence());
    row.Number("same_choice", next.same_choice(), Row::Unit::kShare);
    row.Number("density", quality.pairs.density(), Row::Unit::kShare);
    row.Number("coverage", quality.covered_rows > 0 ? quality.covered / quality.covered_rows : 1,
               Row::Unit::kShare);
    row.Number("seconds", quality.seconds, Row::Unit::kSeconds);
    if (options_.needles > 0) {
      row.Number("answered", answers.share, Row::Unit::kShare);
      row.Number("reference_answered", answers.reference, Row::Unit::kShare);
    }
    row.OnlyJson().Number("reference_seconds", quality.reference_seconds, Row::Unit::kSeconds);
    row.Text("reference_weights", DTypeName(options_.reference)).Text("model", options_.model);
    row.Int("texts", std::ssize(texts_)).Int("positions", next.count());
    row.Int("needles", options_.needles);
    return row;
  }

  const QualityOptions& options_;
  BenchContext& context_;
  std::unique_ptr<Backend> backend_;
  KernelRegistry kernels_;
  KernelRegistry float8_kernels_;  // for keys and values of fp8_e4m3, if asked for
  std::unique_ptr<LoadedModel> reference_;
  // By the dtypes of weights, and of keys and values: all but the reference.
  std::map<std::pair<DType, DType>, std::unique_ptr<LoadedModel>> loaded_;
  std::vector<std::vector<int32_t>> texts_;
  std::map<int32_t, double> reference_answered_;  // by length
};

absl::Status RunQuality(const QualityOptions& options, BenchContext& context) {
  ANNULUS_ASSIGN_OR_RETURN(const auto run, QualityRun::Create(options, context));
  return run->Run();
}

}  // namespace

void AddQualityCommand(CLI::App& app, BenchContext& context) {
  auto options = std::make_shared<QualityOptions>();
  CLI::App* command = app.add_subcommand(
      "quality",
      "Measure what rounded weights, rounded keys and values or an attention policy cost: compare "
      "next-token distributions with those of the model without it; one row per saving. All models "
      "read side by side, so all of them are in memory at the same time");
  command->footer(
      "Examples:\n"
      "  annulus-bench quality --model /models/llama --text book.txt --weights-dtype bf16,int8\n"
      "  annulus-bench quality --model model.gguf --text a.txt b.txt --tokens 2048,8192 \\\n"
      "      --kv-dtype bf16,int8 --attention window:window=1024 adaptive:coverage=0.95 --json");
  command->add_option("--model", options->model, "Model directory, GGUF file or builtin:NAME")
      ->required();
  command->add_option("--text", options->texts, "Text files, each at least --tokens long")
      ->required();
  AddCounts(*command, "--tokens", options->tokens, 2, 1 << 20,
            "How many tokens to read of each text");
  AddDType(
      *command, "--reference-dtype", [options](DType dtype) { options->reference = dtype; },
      "Weights of the reference model; its keys and values are f32, its attention dense "
      "(default: f32)");
  AddDTypes(*command, "--weights-dtype", options->weights,
            "Weight dtypes to try, separated by commas");
  AddDTypes(*command, "--kv-dtype", options->kv,
            "Dtypes of keys and values to try, separated by commas");
  command->add_option("--attention", options->attention,
                      "Policies to try, NAME or NAME:PARAMETER=VALUE,..., separated by blanks");
  command->add_option("--attention-gates", options->gates, "Gates for the policy 'learned'")
      ->type_name("FILE");
  AddActivations(*command, options->activations);
  command
      ->add_option("--attention-math", options->attention_math,
                   "What attention multiplies keys and values of fp8_e4m3 in: float, or fp8, where "
                   "queries and weights are rounded to fp8_e4m3 too, in scalars, slowly; needs "
                   "--kv-dtype fp8_e4m3")
      ->check(CLI::IsMember({"float", kFloat8Math}))
      ->capture_default_str();
  command
      ->add_option(
          "--needles", options->needles,
          "Also plant this many facts in each text, ask for them in the model's own template, "
          "and report the share answered")
      ->check(CLI::Range(0, kMostNeedles))
      ->capture_default_str();
  command->add_option("--page-tokens", options->page_tokens, "Tokens per page, as on the server")
      ->check(CLI::Range(16, 256))
      ->capture_default_str();
  AddThreads(*command, options->threads);
  command->callback([options, &context] {
    context.action = [=, &context] { return RunQuality(*options, context); };
  });
}

}  // namespace annulus::bench

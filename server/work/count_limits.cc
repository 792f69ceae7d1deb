#include "server/work/count_limits.h"

namespace annulus::server {
namespace {

constexpr CountLimit kLimits[] = {
    {"annulus.v1.Messages.messages", kMostMessages, "messages", "1 to 10000"},
    {"annulus.v1.GenerationSpec.documents", kMostDocuments, "documents", "at most 64"},
    {"annulus.v1.PrefillDocumentRequest.before", kMostDocuments - 1, "documents", "at most 63"},
    {"annulus.v1.Choices.texts", kMostChoices, "choices", "1 to 10000"},
    {"annulus.v1.AskManyRequest.questions", kMostQuestions, "questions", "1 to 1000"},
    {"annulus.v1.SamplingParams.stop", kMostStops, "stop texts", "at most 16"},
    {"annulus.v1.SamplingParams.stop_token_ids", kMostStopTokenIds, "ids", "at most 1024"},
    {"annulus.v1.SamplingParams.logit_bias", kMostBiases, "entries", "at most 1024"},
};

}  // namespace

const CountLimit* FindCountLimit(absl::string_view field) {
  for (const CountLimit& limit : kLimits) {
    if (limit.field == field) return &limit;
  }
  return nullptr;
}

}  // namespace annulus::server

#ifndef ANNULUS_SERVER_GENERATION_MESSAGES_H_
#define ANNULUS_SERVER_GENERATION_MESSAGES_H_

// Converts engine data to protocol messages and back, field by field.

#include <string>

#include "annulus/v1/admin.pb.h"
#include "annulus/v1/document.pb.h"
#include "annulus/v1/inference.pb.h"
#include "annulus/v1/model.pb.h"
#include "engine/api.h"
#include "server/documents/document_store.h"

namespace annulus::server {

ChatRequest FromMessage(const v1::Messages& messages);

v1::PromptProgress ToMessage(const PromptProgress& progress);
v1::TokenLogprob ToMessage(const TokenLogprob& logprob);
v1::SentenceEvidence ToMessage(const SentenceEvidence& sentence);
v1::Delta ToMessage(Delta delta);
v1::CacheMiss ToMessage(const CacheMiss& miss);
// For completions with status OK. `origin` is the one in the first event.
v1::Completion ToMessage(const Completion& completion, const std::string& request_id,
                         const v1::Origin& origin);
// Only the fields that a model's publisher may recommend.
v1::SamplingParams DefaultsMessage(const SamplingParams& params);
v1::Model ToMessage(const ModelInfo& info, const std::string& name);
v1::RankLoad ToMessage(const RankLoad& rank);
v1::GetLoadResponse ToMessage(const EngineLoad& load);
v1::Document ToMessage(const StoredDocument& document, const KeptDocument& kept = {});

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_MESSAGES_H_

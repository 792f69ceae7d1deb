#include "engine/runner/choice/sum_exchange.h"

#include <algorithm>
#include <limits>

#include "engine/runner/choice/antidiagonals.h"
#include "kernels/base/status_macros.h"

namespace annulus {

template <class Visit>
void SumExchange::ForEachSummed(int peer, const Visit& visit) {
  ForEachQuery(choices_, peer, [&](Choice& item, ChoiceQuery& query, int other) {
    if (query.antidiagonal() && item.ring->degree() > 1) visit(item, query, other);
  });
}

absl::Status SumExchange::Run() {
  ANNULUS_RETURN_IF_ERROR(ReturnSums());
  return SendSums();
}

// Own rows learn the sums over the keys of all ranks.
absl::Status SumExchange::ReturnSums() {
  const auto give = [&](int peer, std::vector<RingPart>& parts) {
    ForEachSummed(peer, [&](Choice& item, ChoiceQuery& query, int other) {
      if (Owes(item, query, other)) parts.push_back(PartOf(query.scored[other].sums));
    });
  };
  const auto expect = [&](int peer, std::vector<size_t>& bytes) {
    ForEachSummed(peer, [&](Choice& item, ChoiceQuery& query, int other) {
      if (!Asks(item, query, other)) return;
      bytes.push_back(static_cast<size_t>(query.groups[item.index()] * context_.heads()) *
                      sizeof(float));
    });
  };
  const auto take = [&](int peer, const RingParts& parts) {
    absl::Status status;
    size_t next = 0;
    ForEachSummed(peer, [&](Choice& item, ChoiceQuery& query, int other) {
      if (!Asks(item, query, other) || !status.ok()) return;
      status = AddSums(item, query, FloatsOf(parts[next++]));
    });
    return status;
  };
  ANNULUS_RETURN_IF_ERROR(ChoiceRound(context_, layer_, 5, give, expect, take));
  absl::Status status;
  ForEachSummed(context_.link.rank(), [&](Choice& item, ChoiceQuery& query, int own) {
    if (!Asks(item, query, own) || !status.ok()) return;
    status = AddSums(item, query, query.scored[own].sums);
  });
  return status;
}

absl::Status SumExchange::AddSums(const Choice& item, ChoiceQuery& query,
                                  std::span<const float> sums) {
  if (query.sums.empty()) {
    ANNULUS_ASSIGN_OR_RETURN(query.sums,
                             context_.Keep(static_cast<size_t>(query.groups[item.index()]) *
                                           static_cast<size_t>(context_.heads())));
    std::fill(query.sums.begin(), query.sums.end(), -std::numeric_limits<float>::infinity());
  }
  for (size_t i = 0; i < sums.size(); ++i) query.sums[i] = LogAdd(query.sums[i], sums[i]);
  return absl::OkStatus();
}

// Page holders get them too, and pool their scores.
absl::Status SumExchange::SendSums() {
  const auto give = [&](int peer, std::vector<RingPart>& parts) {
    ForEachSummed(peer, [&](Choice& item, ChoiceQuery& query, int other) {
      if (Asks(item, query, other)) parts.push_back(PartOf(query.sums));
    });
  };
  const auto expect = [&](int peer, std::vector<size_t>& bytes) {
    ForEachSummed(peer, [&](Choice& item, ChoiceQuery& query, int other) {
      if (!Owes(item, query, other)) return;
      bytes.push_back(static_cast<size_t>(query.groups[other] * context_.heads()) * sizeof(float));
    });
  };
  const auto take = [&](int peer, const RingParts& parts) {
    absl::Status status;
    size_t next = 0;
    ForEachSummed(peer, [&](Choice& item, ChoiceQuery& query, int other) {
      if (!Owes(item, query, other) || !status.ok()) return;
      status = PoolOwed(item, query, other, FloatsOf(parts[next++]).data());
    });
    return status;
  };
  ANNULUS_RETURN_IF_ERROR(ChoiceRound(context_, layer_, 6, give, expect, take));
  absl::Status status;
  ForEachSummed(context_.link.rank(), [&](Choice& item, ChoiceQuery& query, int own) {
    if (!Asks(item, query, own) || !status.ok()) return;
    status = PoolOwed(item, query, own, query.sums.data());
  });
  return status;
}

absl::Status SumExchange::PoolOwed(const Choice& item, ChoiceQuery& query, int runner,
                                   const float* sums) {
  ANNULUS_ASSIGN_OR_RETURN(
      const std::span<float> masses,
      context_.Keep(static_cast<size_t>(query.lists[runner]) * item.seen[runner].size()));
  query.owed[runner] = masses;
  const Antidiagonals scores(context_, layer_, item, query, runner);
  ANNULUS_RETURN_IF_ERROR(scores.Pool(query.scored[runner], sums, masses));
  const absl::Status status = context_.stream.Synchronize();
  context_.link.Beat();
  return status;
}

}  // namespace annulus

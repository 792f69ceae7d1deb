// Options of rings whose ranks are in several processes, and what belongs together with them.

#include "server/config/cluster_options.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/config/loopback.h"
#include "server/config/option_rows.h"

namespace annulus::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;

constexpr int kMostRanks = 64;  // as --ranks
constexpr size_t kLongestName = 64;

absl::StatusOr<std::string> ParseWorkerName(absl::string_view text) {
  bool allowed = text.size() <= kLongestName;
  for (const char c : text) allowed = allowed && absl::ascii_isgraph(c);
  if (allowed) return std::string(text);
  return absl::InvalidArgumentError(absl::StrCat(QuoteValue(text), " is not allowed: at most ",
                                                 kLongestName,
                                                 " printable ASCII characters without spaces"));
}

// Options that only a coordinator, or a daemon alone, has a use for.
absl::Status CheckNotOfWorkers(const OptionTexts& texts) {
  for (const auto& [option, text] : texts) {
    for (const absl::string_view name :
         {"listen", "http", "ranks", "documents", "kv-host", "kv-disk", "kv-memory",
          "worker-silence", "replacement-timeout", "tolerate"}) {
      if (option->name != name || text == option->default_value) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is ", text,
                       ", but a worker (join) serves no clients, and its "
                       "coordinator says how many ranks and how much memory the ring has; remove "
                       "it, or set it on the coordinator"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTiersOfWorkers(const ServerConfig& config) {
  const EngineOptions& engine = config.engine;
  if (!engine.kv_disk.empty()) {
    return absl::InvalidArgumentError(
        "kv-disk is set together with workers-listen, but pages of workers cannot be kept on disk "
        "yet; remove one of them");
  }
  if (engine.kv_host_bytes == 0) return absl::OkStatus();
  if (engine.kv_verify == KvVerify::kAll) {
    return absl::InvalidArgumentError(
        "kv-verify is all; with kv-host and workers-listen it is sample or off");
  }
  if (config.tolerated_ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tolerate is ", config.tolerated_ranks,
      " and kv-host is set; no room can be kept for the loss of ranks then: remove one of them"));
}

absl::Status CheckCertificates(const ServerConfig& config, absl::string_view option,
                               const std::string& address) {
  if (config.tls_certificate.empty() && IsLoopbackAddress(address)) return absl::OkStatus();
  if (!config.tls_client_ca.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      option, " is ", address, config.tls_certificate.empty() ? ", which others can reach" : "",
      ": coordinator and workers need certificates of each other; set tls-certificate, tls-key "
      "and tls-client-ca on both",
      config.tls_certificate.empty() ? ", or use 127.0.0.1" : ""));
}

}  // namespace

std::vector<Option> ClusterOptions() {
  return {
      {"workers-listen", "HOST:PORT|off", "off",
       "Address on which workers (--join) dial that host ranks of this daemon's ring. On an "
       "address that others can reach, workers and this daemon need certificates "
       "(--tls-certificate, --tls-key, --tls-client-ca) with a common name; on 127.0.0.1 they "
       "need none, and must be of the same user. Tokens of prompts and their keys and values "
       "travel between the processes, those over UCX unencrypted: see SECURITY.md.",
       Into(&ServerConfig::workers_listen, ParseOptionalAddress)},
      {"join", "HOST:PORT|off", "off",
       "Host ranks for the daemon whose --workers-listen this is, instead of serving. Takes the "
       "same --model; waits until the daemon is there.",
       Into(&ServerConfig::join, ParseOptionalAddress)},
      {"local-ranks", "N", "1",
       "With --workers-listen or --join: how many ranks of the ring this process hosts.",
       Within(&ServerConfig::local_ranks, 1, kMostRanks)},
      {"worker-name", "NAME", "",
       "With --join: the worker's name in messages, which no other worker of the ring has; empty: "
       "HOST-PID.",
       Into(&ServerConfig::worker_name, ParseWorkerName)},
      {"allow-public-wire", "on|off", "off",
       "With --workers-listen or --join: let ranks exchange keys and values, which UCX does not "
       "encrypt, over network devices whose addresses are not private. UCX_NET_DEVICES names the "
       "devices to use.",
       OneOf(&ServerConfig::allow_public_wire, {{"on", true}, {"off", false}}),
       /*bare=*/true},
      {"worker-silence", "TIME", "2s",
       "With --workers-listen: a worker that says nothing for this long is lost. So is one that "
       "says "
       "that it is alive while its step makes no progress for this long and --exchange-timeout. "
       "Workers say so every eighth of it, or every 250 ms if that is less, and let go of a daemon "
       "that says nothing for three quarters of it. At most --exchange-timeout. Raise it where "
       "machines or networks stand still for seconds.",
       Within(&ServerConfig::worker_silence, milliseconds(500), minutes(10))},
      {"replacement-timeout", "TIME", "60s",
       "With --workers-listen: how long requests wait, when a worker is lost, for another that "
       "takes its ranks. Then the ring goes on without these ranks, and requests that do not fit "
       "on the others end. A worker that comes later takes them; one that dials while none is "
       "missing waits as a spare.",
       Within(&ServerConfig::replacement_timeout, milliseconds(0), hours(24))},
      {"tolerate", "N", "0",
       "With --workers-listen: keep room for the loss of N ranks (a worker may have several), so "
       "that no running request ends because the others have too few pages. A request starts only "
       "if it, all that runs and all pinned documents would fit on a ring of the other ranks, and "
       "waits until then; one that would not fit there even alone is refused. After a loss, "
       "requests with pages on lost ranks start anew there. One of them may wait for another to "
       "end, since requests on other ranks are not moved. Pinned documents count as spread evenly "
       "over the ranks; with --admission expected an answer counts with its expected length. From "
       "0 to --ranks less --local-ranks.",
       Within(&ServerConfig::tolerated_ranks, 0, kMostRanks - 1)},
  };
}

void LeaveOutUnsetMetrics(const OptionTexts& texts, ServerConfig& config) {
  const bool set = std::any_of(texts.begin(), texts.end(), [](const auto& entry) {
    return entry.first->name == absl::string_view("metrics");
  });
  if (!config.join.empty() && !set) config.metrics.clear();
}

absl::Status CheckCluster(const ServerConfig& config, const OptionTexts& texts) {
  const bool coordinator = !config.workers_listen.empty();
  const bool worker = !config.join.empty();
  if (coordinator && worker) {
    return absl::InvalidArgumentError(
        "workers-listen and join are both set; a process either has workers or is one: remove one "
        "of them");
  }
  if (!coordinator && !worker) {
    for (const auto& [name, set] : {std::pair("local-ranks", config.local_ranks != 1),
                                    std::pair("worker-name", !config.worker_name.empty()),
                                    std::pair("allow-public-wire", config.allow_public_wire)}) {
      if (!set) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          name, " is set without workers-listen and join; set one of them, or remove it"));
    }
    for (const auto& [option, text] : texts) {
      for (const absl::string_view name : {"worker-silence", "replacement-timeout", "tolerate"}) {
        if (option->name != name || text == option->default_value) continue;
        return absl::InvalidArgumentError(
            absl::StrCat(name, " is set without workers-listen; set that too, or remove it"));
      }
    }
    return absl::OkStatus();
  }
  if (config.device == DeviceChoice::kCuda) {
    return absl::InvalidArgumentError(
        "device is cuda, but rings of several processes compute on CPUs only; set it to cpu, or "
        "use the GPUs of one machine with --ranks");
  }
  if (worker) {
    ANNULUS_RETURN_IF_ERROR(CheckNotOfWorkers(texts));
    return CheckCertificates(config, "join", config.join);
  }
  if (!config.worker_name.empty()) {
    return absl::InvalidArgumentError("worker-name is set without join; remove it");
  }
  if (config.local_ranks >= config.engine.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranks is ", config.engine.ranks, " and local-ranks ", config.local_ranks,
                     ", which leaves no rank for workers; raise ranks, or remove workers-listen"));
  }
  const int at_workers = config.engine.ranks - config.local_ranks;
  if (config.tolerated_ranks > at_workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("tolerate is ", config.tolerated_ranks, "; with ranks ", config.engine.ranks,
                     " and local-ranks ", config.local_ranks, " it is 0 to ", at_workers,
                     ", the ranks at workers, which alone can be lost"));
  }
  // What ranks at workers learn of the progress of others may be that old.
  if (config.engine.exchange_timeout < config.worker_silence) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange-timeout is ", config.engine.exchange_timeout.count(),
                     "ms and worker-silence ", config.worker_silence.count(),
                     "ms; with workers-listen exchange-timeout is at least as long: raise it, or "
                     "lower worker-silence"));
  }
  ANNULUS_RETURN_IF_ERROR(CheckTiersOfWorkers(config));
  return CheckCertificates(config, "workers-listen", config.workers_listen);
}

}  // namespace annulus::server

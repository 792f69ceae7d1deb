// door-lab GRPC HTTP PID: what the door of HTTP costs beside that of gRPC, at a daemon that listens
// at both and whose process is PID. Speaks to it as programs do: gRPC by the client library, HTTP
// by one plain connection for each stream. The two doors take turns, so that what else the machine
// does meets both. See bench/SERVERS.md.
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/report/statistics.h"
#include "client/generation.h"

namespace annulus::bench {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "door-lab: %s\n", why.c_str());
  std::exit(1);
}

// What one answer took, in seconds from the call.
struct Taken {
  double first = 0;
  double all = 0;
  int64_t tokens = 0;
};

// A prompt and how many tokens to answer.
struct Asked {
  std::string prompt;
  int tokens = 1;
};

class Noted final : public client::GenerationObserver {
 public:
  Noted(Clock::time_point start, Taken& taken) : start_(start), taken_(taken) {}
  void OnQueued(const v1::Queued&) override {}
  void OnProgress(const v1::PromptProgress&) override {}
  void OnDelta(const v1::Delta& delta) override {
    if (taken_.tokens == 0) taken_.first = SecondsSince(start_);
    taken_.tokens += delta.token_ids_size();
  }

 private:
  const Clock::time_point start_;
  Taken& taken_;
};

Taken AskByGrpc(client::Connection& connection, const Asked& asked) {
  v1::GenerationSpec spec;
  spec.set_text(asked.prompt);
  spec.mutable_sampling()->set_max_tokens(asked.tokens);
  spec.mutable_sampling()->set_ignore_eos(true);
  spec.mutable_sampling()->set_seed(1);
  spec.set_speculation(v1::SPECULATION_OFF);
  Taken taken;
  const auto start = Clock::now();
  Noted noted(start, taken);
  client::StreamGenerate(connection, spec, noted);
  taken.all = SecondsSince(start);
  return taken;
}

// A kept-alive connection. Answers are read until the end that the server states.
class HttpDoor {
 public:
  explicit HttpDoor(const std::string& address) {
    const std::vector<std::string> parts = absl::StrSplit(address, ':');
    addrinfo* found = nullptr;
    if (parts.size() != 2 ||
        getaddrinfo(parts[0].c_str(), parts[1].c_str(), nullptr, &found) != 0) {
      Fail(absl::StrCat(address, " is no HOST:PORT"));
    }
    socket_ = socket(found->ai_family, SOCK_STREAM, 0);
    const timeval limit{120, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    const bool joined = connect(socket_, found->ai_addr, found->ai_addrlen) == 0;
    freeaddrinfo(found);
    if (!joined) Fail(absl::StrCat("nobody listens at ", address));
  }
  ~HttpDoor() { close(socket_); }
  HttpDoor(const HttpDoor&) = delete;
  HttpDoor& operator=(const HttpDoor&) = delete;

  Taken Ask(const Asked& asked) {
    const std::string body = absl::StrCat(
        "{\"model\":\"\",\"prompt\":\"", asked.prompt, "\",\"max_tokens\":", asked.tokens,
        ",\"ignore_eos\":true,\"seed\":1,\"stream\":true,\"annulus\":{\"speculation\":\"off\"}}");
    Taken taken;
    const auto start = Clock::now();
    Send(
        absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                     "application/json\r\nContent-Length: ",
                     body.size(), "\r\n\r\n", body));
    std::string got;
    // Streams end with an empty chunk, refusals with their only line.
    while (got.find("\r\n0\r\n\r\n") == std::string::npos && !got.ends_with("}\n") &&
           !got.ends_with("}}")) {
      std::array<char, 65536> buffer;
      const ssize_t bytes = recv(socket_, buffer.data(), buffer.size(), 0);
      if (bytes <= 0) Fail(absl::StrCat("the connection ended behind: ", got));
      got.append(buffer.data(), static_cast<size_t>(bytes));
      if (taken.tokens == 0 && got.find("data: {") != std::string::npos) {
        taken.first = SecondsSince(start);
        taken.tokens = asked.tokens;
      }
    }
    taken.all = SecondsSince(start);
    return taken;
  }

 private:
  void Send(const std::string& bytes) const {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t more = send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (more <= 0) Fail("the connection ended");
      sent += static_cast<size_t>(more);
    }
  }

  int socket_ = -1;
};

// Seconds of processor time that the process has taken.
double ProcessorSeconds(const std::string& pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (text.empty()) Fail(absl::StrCat("no process ", pid));
  // Behind the name, which may hold anything, utime and stime are the 12th and 13th.
  const std::vector<std::string> fields = absl::StrSplit(text.substr(text.rfind(')') + 2), ' ');
  double ticks = 0, more = 0;
  if (!absl::SimpleAtod(fields[11], &ticks) || !absl::SimpleAtod(fields[12], &more))
    Fail("no times");
  return (ticks + more) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void PrintFirstTokens(client::Connection& grpc, const std::string& http, int rounds) {
  HttpDoor door(http);
  std::array<std::vector<double>, 2> first;
  for (int i = 0; i < rounds; ++i) {
    const Asked asked{absl::StrCat("Question ", i), 1};
    first[0].push_back(AskByGrpc(grpc, asked).first * 1e3);
    first[1].push_back(door.Ask(asked).first * 1e3);
  }
  for (const double share : {0.5, 0.99}) {
    const double a = Percentile(first[0], share), b = Percentile(first[1], share);
    std::printf("first token, p%g of %d: gRPC %.3f ms, HTTP %.3f ms, %+.3f\n", share * 100, rounds,
                a, b, b - a);
  }
}

void PrintBodies(client::Connection& grpc, const std::string& http, size_t bytes, int rounds) {
  const Asked asked{std::string(bytes, 'a'), 1};
  std::array<std::vector<double>, 2> all;
  for (int i = 0; i < rounds; ++i) {
    all[0].push_back(AskByGrpc(grpc, asked).all * 1e3);
    HttpDoor door(http);
    all[1].push_back(door.Ask(asked).all * 1e3);
  }
  const double a = Median(all[0]), b = Median(all[1]);
  std::printf("a prompt of %zu bytes, median of %d: gRPC %.1f ms, HTTP %.1f ms, %+.1f\n", bytes,
              rounds, a, b, b - a);
}

// How long so many streams take at once, and how much processor time a token costs the daemon.
void PrintStreams(client::Connection& grpc, const std::string& http, const std::string& pid,
                  int streams, int tokens, int rounds) {
  std::array<std::vector<double>, 2> cost, rate;
  for (int round = 0; round < rounds; ++round) {
    for (const int door : {0, 1}) {
      const double before = ProcessorSeconds(pid);
      const auto start = Clock::now();
      std::vector<std::thread> threads;
      for (int i = 0; i < streams; ++i) {
        threads.emplace_back([&, i] {
          const Asked asked{absl::StrCat("Stream ", round, " ", i), tokens};
          if (door == 0) {
            AskByGrpc(grpc, asked);
          } else {
            HttpDoor(http).Ask(asked);
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      const double all = static_cast<double>(streams) * tokens;
      cost[door].push_back((ProcessorSeconds(pid) - before) / all * 1e6);
      rate[door].push_back(all / SecondsSince(start));
    }
  }
  const double a = Median(cost[0]), b = Median(cost[1]);
  std::printf(
      "%d streams, median of %d: gRPC %.1f us of processor a token (%.0f tokens/s), HTTP %.1f us "
      "(%.0f), %+.1f us: at 100 tokens/s each %+.3f of a core\n",
      streams, rounds, a, Median(rate[0]), b, Median(rate[1]), b - a,
      (b - a) * 1e-6 * streams * 100);
}

int Run(const std::string& grpc, const std::string& http, const std::string& pid) {
  client::Cancellation cancellation;
  const auto connection = client::Connection::Open({.server = grpc}, cancellation);
  if (!connection.ok()) Fail(std::string(connection.status().message()));
  PrintFirstTokens(**connection, http, 1000);
  PrintBodies(**connection, http, (size_t{16} << 20) - 4096, 9);
  PrintStreams(**connection, http, pid, 64, 400, 5);
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: door-lab GRPC_HOST:PORT HTTP_HOST:PORT PID_OF_THE_DAEMON\n", stderr);
    return 2;
  }
  return annulus::bench::Run(argv[1], argv[2], argv[3]);
}

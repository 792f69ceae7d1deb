#include "server/process/thread_reserve.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace annulus::server {
namespace {

using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

Create RealCreate() {
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return real;
}

constexpr size_t kStackBytes = size_t{64} << 10;  // of a thread that only waits
// The system counts a thread for a moment after it has been joined.
constexpr int kTries = 100;
constexpr std::chrono::milliseconds kBetweenTries{1};

struct IdleThread {
  IdleThread() { sem_init(&end, 0, 0); }
  ~IdleThread() { sem_destroy(&end); }
  IdleThread(const IdleThread&) = delete;
  IdleThread& operator=(const IdleThread&) = delete;

  pthread_t id{};
  sem_t end{};
};

void* WaitForEnd(void* thread) {
  sem_t& end = static_cast<IdleThread*>(thread)->end;
  while (sem_wait(&end) != 0 && errno == EINTR) continue;
  return nullptr;
}

void End(IdleThread& thread) {
  sem_post(&thread.end);
  pthread_join(thread.id, nullptr);
}

// Starts an idle thread; null if that is not possible. `stack_bytes`: nullopt for the usual size.
std::unique_ptr<IdleThread> StartIdle(std::optional<size_t> stack_bytes) {
  auto thread = std::make_unique<IdleThread>();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (stack_bytes.has_value()) pthread_attr_setstacksize(&attributes, *stack_bytes);
  const int failed = RealCreate()(&thread->id, &attributes, &WaitForEnd, thread.get());
  pthread_attr_destroy(&attributes);
  if (failed != 0) return nullptr;
  return thread;
}

absl::Status TooFewError(size_t possible, size_t needed) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "the system lets this process start ", possible, " more threads, and annulusd needs ", needed,
      ": raise the limit of its control group (pids.max; TasksMax= of systemd, --pids-limit of "
      "containers, podPidsLimit of Kubernetes), of its user (ulimit -u) or of its address space "
      "(ulimit -v)"));
}

// Outlives all threads that may be started while the process ends.
struct Shared {
  std::mutex mutex;
  bool exists = false;
  size_t most = 0;
  std::vector<std::unique_ptr<IdleThread>> idle;
};
Shared& shared() {
  static Shared* const instance = new Shared;
  return *instance;
}

std::atomic<int64_t> failed{0};

bool EndOne() {
  std::unique_ptr<IdleThread> thread;
  {
    std::lock_guard lock(shared().mutex);
    if (shared().idle.empty()) return false;
    thread = std::move(shared().idle.back());
    shared().idle.pop_back();
  }
  End(*thread);
  return true;
}

int CreateWithReserve(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                      void* argument) {
  const auto create = [&] { return RealCreate()(thread, attributes, start, argument); };
  int result = create();
  while (result == EAGAIN && EndOne()) {
    for (int i = 0; result == EAGAIN && i < kTries; ++i) {
      result = create();
      if (result == EAGAIN) std::this_thread::sleep_for(kBetweenTries);
    }
  }
  if (result == EAGAIN) ++failed;
  return result;
}

}  // namespace

int ThreadReserve::ForThisMachine() {
  constexpr int kForTimersAndEvents = 16;
  return 4 * static_cast<int>(std::thread::hardware_concurrency()) + kForTimersAndEvents;
}

ThreadReserve::ThreadReserve(int threads) {
  std::lock_guard lock(shared().mutex);
  ANNULUS_CHECK(!shared().exists) << "a process has one reserve of threads";
  shared().exists = true;
  shared().most = static_cast<size_t>(threads);
}

ThreadReserve::~ThreadReserve() {
  while (EndOne()) continue;
  std::lock_guard lock(shared().mutex);
  shared().exists = false;
}

absl::Status ThreadReserve::Fill() {
  std::lock_guard lock(shared().mutex);
  Shared& now = shared();
  now.idle.reserve(now.most);
  while (now.idle.size() < now.most) {
    std::unique_ptr<IdleThread> thread = StartIdle(kStackBytes);
    if (thread == nullptr) return TooFewError(now.idle.size(), now.most);
    now.idle.push_back(std::move(thread));
  }
  return absl::OkStatus();
}

bool ThreadReserve::full() const {
  std::lock_guard lock(shared().mutex);
  return shared().idle.size() == shared().most;
}

int64_t ThreadReserve::failures() { return failed; }

int ThreadsNeeded(int computing, int ranks) {
  // Those of the work pool, of listeners, tiers, the log, timers and of gRPC at its start; one of
  // the work pool for each processor.
  constexpr int kAlways = 64;
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  const int computes = computing > 0 ? computing : processors;
  return kAlways + processors + computes + 2 * ranks + ThreadReserve::ForThisMachine();
}

absl::Status CheckThreadRoom(int threads) {
  std::vector<std::unique_ptr<IdleThread>> started;
  const auto needed = static_cast<size_t>(threads);
  while (started.size() < needed) {
    std::unique_ptr<IdleThread> thread = StartIdle(std::nullopt);
    if (thread == nullptr) break;
    started.push_back(std::move(thread));
  }
  const size_t possible = started.size();
  for (const auto& thread : started) End(*thread);
  return possible == needed ? absl::OkStatus() : TooFewError(possible, needed);
}

}  // namespace annulus::server

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  return annulus::server::CreateWithReserve(thread, attributes, start, argument);
}

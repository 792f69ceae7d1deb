// Tells the thread sanitizer what gRPC orders. Debian's gRPC is not instrumented and synchronises
// by means that the sanitizer does not see, so a callback would look as if nothing had come before
// it. Linked into a program in builds for the thread sanitizer only, this file stands in front of
// the few functions through which work goes into gRPC and comes back, and notes for each piece of
// work that what was done before it was started happens before its callback. There is one such edge
// per piece of work and none between calls, so that races between calls, or between a call and the
// rest of the server, are reported as ever. Written for gRPC 1.51 (Debian 12).

#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpcpp/alarm.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/server_callback.h>
#include <link.h>
#include <sanitizer/tsan_interface.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace annulus {
namespace {

// What happened before a server was started happens before its handlers, and what happened in calls
// happens before the server has been destroyed. These stand for all servers of the program.
char servers_started;
char calls_ended;

constexpr char kMutexLock[] = "_ZN4absl7debian35Mutex4LockEv";
constexpr char kMutexUnlock[] = "_ZN4absl7debian35Mutex6UnlockEv";
constexpr char kScheduleOnDone[] = "_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb";
constexpr char kClientScheduleOnDone[] =
    "_ZN4grpc8internal13ClientReactor22InternalScheduleOnDoneENS_6StatusE";
constexpr char kAlarmSet[] = "_ZN4grpc5Alarm11SetInternalE12gpr_timespecSt8functionIFvbEE";
constexpr char kCallOnCancel[] =
    "_ZN4grpc8internal18ServerCallbackCall12CallOnCancelEPNS0_13ServerReactorE";

// The function of this name in gRPC's library; this program's own one stands in front of it.
template <typename Function>
Function* Next(Function* /*type*/, const char* name) {
  void* const next = dlsym(RTLD_NEXT, name);
  if (next == nullptr) std::abort();
  return reinterpret_cast<Function*>(next);
}

struct CodeRange {
  uintptr_t begin;
  uintptr_t end;
  bool of_server;  // belongs to this program or to libgrpc++, not to a library below them
};

int AddCode(dl_phdr_info* module, size_t /*size*/, void* code) {
  const std::string_view name = module->dlpi_name;  // empty for the program itself
  const bool of_server = name.empty() || name.find("libgrpc++") != std::string_view::npos;
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = module->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    const uintptr_t begin = module->dlpi_addr + part.p_vaddr;
    static_cast<std::vector<CodeRange>*>(code)->push_back({begin, begin + part.p_memsz, of_server});
  }
  return 0;
}

// The code that `address` lies in, or null.
const CodeRange* FindCode(uintptr_t address) {
  static const std::vector<CodeRange> code = [] {
    std::vector<CodeRange> found;
    dl_iterate_phdr(AddCode, &found);
    return found;
  }();
  for (const CodeRange& range : code) {
    if (range.begin <= address && address < range.end) return &range;
  }
  return nullptr;
}

// A batch's tag is either a functor, which begins with a pointer to a function, or an object with
// virtual functions, which begins with a pointer to a table.
bool IsFunctor(const void* tag) {
  return tag != nullptr && FindCode(*static_cast<const uintptr_t*>(tag)) != nullptr;
}

// Stands for the functor of one batch.
struct OrderedFunctor : grpc_completion_queue_functor {
  explicit OrderedFunctor(grpc_completion_queue_functor* functor)
      : grpc_completion_queue_functor{&Run, functor->inlineable, 0, nullptr}, functor(functor) {
    __tsan_release(this);
  }

  static void Run(grpc_completion_queue_functor* self, int ok) {
    __tsan_acquire(self);
    const std::unique_ptr<OrderedFunctor> ordered(static_cast<OrderedFunctor*>(self));
    ordered->functor->functor_run(ordered->functor, ok);
  }

  grpc_completion_queue_functor* const functor;
};

// Of gRPC's mutexes, those count that guard a reactor or a service. Others, for example those of
// its queues and threads, would order calls that have nothing to do with each other.
bool IsOfServer(const void* caller) {
  const CodeRange* const code = FindCode(reinterpret_cast<uintptr_t>(caller));
  return code != nullptr && code->of_server;
}

}  // namespace
}  // namespace annulus

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count, void* tag,
                                      void* reserved) {
  static auto* const next = annulus::Next(&grpc_call_start_batch, "grpc_call_start_batch");
  if (!annulus::IsFunctor(tag)) {
    __tsan_release(tag);
    return next(call, ops, count, tag, reserved);
  }
  auto ordered =
      std::make_unique<annulus::OrderedFunctor>(static_cast<grpc_completion_queue_functor*>(tag));
  const grpc_call_error error = next(call, ops, count, ordered.get(), reserved);
  if (error == GRPC_CALL_OK) ordered.release();  // its callback deletes it, perhaps already has
  return error;
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline,
                                      void* reserved) {
  static auto* const next =
      annulus::Next(&grpc_completion_queue_next, "grpc_completion_queue_next");
  const grpc_event event = next(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static auto* const next =
      annulus::Next(&grpc_completion_queue_pluck, "grpc_completion_queue_pluck");
  const grpc_event event = next(queue, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

void grpc_server_start(grpc_server* server) {
  static auto* const next = annulus::Next(&grpc_server_start, "grpc_server_start");
  __tsan_release(&annulus::servers_started);
  next(server);
}

// The first thing that every handler's call does, before the handler's own code.
void* grpc_call_arena_alloc(grpc_call* call, size_t size) {
  static auto* const next = annulus::Next(&grpc_call_arena_alloc, "grpc_call_arena_alloc");
  __tsan_acquire(&annulus::servers_started);
  return next(call, size);
}

// Every call does this after its OnDone.
void grpc_call_unref(grpc_call* call) {
  static auto* const next = annulus::Next(&grpc_call_unref, "grpc_call_unref");
  __tsan_release(&annulus::calls_ended);
  next(call);
}

void grpc_server_destroy(grpc_server* server) {
  static auto* const next = annulus::Next(&grpc_server_destroy, "grpc_server_destroy");
  next(server);
  __tsan_acquire(&annulus::calls_ended);
}

}  // extern "C"

// grpcpp's mutexes are Abseil's, and its headers bring them along.
namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static auto* const next =
      annulus::Next(static_cast<void (*)(Mutex*)>(nullptr), annulus::kMutexLock);
  next(this);
  if (annulus::IsOfServer(__builtin_return_address(0))) __tsan_acquire(this);
}

void Mutex::Unlock() {
  static auto* const next =
      annulus::Next(static_cast<void (*)(Mutex*)>(nullptr), annulus::kMutexUnlock);
  if (annulus::IsOfServer(__builtin_return_address(0))) __tsan_release(this);
  next(this);
}

ABSL_NAMESPACE_END
}  // namespace absl

// OnDone and OnCancel run on another thread of gRPC's, by way of objects that stand for the call
// and for the reactor. The counters are those that gRPC's own code, where it is not instrumented,
// counts down in the same places.
namespace grpc::internal {

void ServerCallbackCall::ScheduleOnDone(bool inline_ondone) {
  using Function = void(ServerCallbackCall*, bool);
  static auto* const next = annulus::Next(
      static_cast<Function*>(nullptr), "_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb");

  class OrderedCall final : public ServerCallbackCall {
   public:
    explicit OrderedCall(ServerCallbackCall* call) : call_(call) { __tsan_release(this); }

   private:
    ServerReactor* reactor() override { return call_->reactor(); }
    void CallOnDone() override {
      __tsan_acquire(this);
      call_->CallOnDone();
      delete this;
    }

    ServerCallbackCall* const call_;
  };

  __tsan_acquire(&callbacks_outstanding_);
  next(new OrderedCall(this), inline_ondone);
}

void ServerCallbackCall::CallOnCancel(ServerReactor* reactor) {
  using Function = void(ServerCallbackCall*, ServerReactor*);
  static auto* const next = annulus::Next(static_cast<Function*>(nullptr), annulus::kCallOnCancel);

  class OrderedReactor final : public ServerReactor {
   public:
    OrderedReactor(ServerCallbackCall* call, ServerReactor* reactor)
        : call_(call), reactor_(reactor) {
      __tsan_release(this);
    }

    void OnDone() override { std::abort(); }  // the call has its reactor for that
    void OnCancel() override {
      __tsan_acquire(this);
      reactor_->OnCancel();
      __tsan_release(&call_->callbacks_outstanding_);
      delete this;
    }

   private:
    bool InternalInlineable() override {
      const bool inlineable = reactor_->InternalInlineable();
      __tsan_release(this);
      return inlineable;
    }

    ServerCallbackCall* const call_;
    ServerReactor* const reactor_;
  };

  __tsan_acquire(&on_cancel_conditions_remaining_);
  next(this, new OrderedReactor(this, reactor));
}

// A client's OnDone also runs on a thread of gRPC's own where no callback leads to it.
void ClientReactor::InternalScheduleOnDone(Status status) {
  using Function = void(ClientReactor*, Status);
  static auto* const next =
      annulus::Next(static_cast<Function*>(nullptr), annulus::kClientScheduleOnDone);

  class OrderedReactor final : public ClientReactor {
   public:
    explicit OrderedReactor(ClientReactor* reactor) : reactor_(reactor) { __tsan_release(this); }

    void OnDone(const Status& status) override {
      __tsan_acquire(this);
      reactor_->OnDone(status);
      delete this;
    }

   private:
    ClientReactor* const reactor_;
  };

  next(new OrderedReactor(this), std::move(status));
}

}  // namespace grpc::internal

namespace grpc {

// What was done before an alarm was set happens before it goes off or is cancelled.
void Alarm::SetInternal(gpr_timespec deadline, std::function<void(bool)> callback) {
  using Function = void(Alarm*, gpr_timespec, std::function<void(bool)>);
  static auto* const next = annulus::Next(static_cast<Function*>(nullptr), annulus::kAlarmSet);

  // Each copy counts, as only the last one is called.
  struct Ordered {
    explicit Ordered(std::function<void(bool)> callback) : callback(std::move(callback)) {
      __tsan_release(this);
    }
    Ordered(const Ordered& other) : callback(other.callback) { __tsan_release(this); }
    void operator()(bool on_time) const {
      __tsan_acquire(const_cast<Ordered*>(this));
      callback(on_time);
    }

    std::function<void(bool)> callback;
  };

  next(this, deadline, Ordered(std::move(callback)));
}

}  // namespace grpc

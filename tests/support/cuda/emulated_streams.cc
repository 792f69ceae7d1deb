#include "tests/support/cuda/emulated_streams.h"

#include <utility>

#include "kernels/base/check.h"
#include "tests/support/cuda/emulated_device.h"

namespace annulus::cuda {
namespace {

// What CUDA queues of a stream, about.
constexpr size_t kQueue = 1000;

}  // namespace

EmulatedStreams& EmulatedStreams::Get() {
  static auto* const streams = new EmulatedStreams;  // never destroyed, as KnownBlocks
  return *streams;
}

StreamHandle EmulatedStreams::Open(int ordinal) {
  auto stream = std::make_shared<Stream>();
  stream->ordinal = ordinal;
  std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const auto& known) { return known.expired(); });
  all_.push_back(stream);
  auto* const opened = new OpenedStream{new std::shared_ptr<Stream>(std::move(stream))};
  open_.insert(opened);
  return opened;
}

// CUDA would let the work go on by itself, in memory that its owner goes on to free.
void EmulatedStreams::Close(StreamHandle stream) {
  if (stream == nullptr) return;
  {
    std::lock_guard lock(mutex_);
    ANNULUS_CHECK(Idle(stream)->work.empty()) << "a stream that is closed before its work is done";
    open_.erase(stream);
  }
  delete &Of(stream);
  delete stream;
}

int EmulatedStreams::DeviceOf(StreamHandle stream) const {
  return stream == nullptr ? 0 : Of(stream)->ordinal;
}

void EmulatedStreams::Enqueue(StreamHandle handle, Work work) {
  Add(handle, {.run = std::move(work)});
}

void EmulatedStreams::EnqueueKernel(StreamHandle handle, Work work, Early early) {
  Add(handle, {std::move(work), /*is_kernel=*/true, std::move(early)});
}

void EmulatedStreams::Add(StreamHandle handle, Piece piece) {
  if (handle == nullptr) {
    ANNULUS_CHECK(piece.run()) << "work without a stream has to wait";
    return;
  }
  const bool hangs = EmulatedDevice::Get().Hangs(DeviceOf(handle));
  if (!late_ && !hangs && Idle(handle)->work.empty() && piece.run()) return;
  std::lock_guard lock(mutex_);
  Stream& stream = *Idle(handle);
  ANNULUS_CHECK(stream.work.size() < kQueue) << "CUDA would wait for the device, without end";
  stream.work.push_back(std::move(piece));
  ++stream.enqueued;
}

// Of the kernel behind the next one.
void EmulatedStreams::RunEarly(Stream& stream) {
  if (stream.work.size() < 2 || !stream.work[0].is_kernel || !stream.work[1].early) return;
  std::exchange(stream.work[1].early, nullptr)();
}

bool EmulatedStreams::RunTo(Stream& stream, uint64_t mark) {
  // Work of this stream waits for another one, which waits for what this stream does next.
  if (stream.running) return stream.done >= mark;
  stream.running = true;
  while (stream.done < mark && !EmulatedDevice::Get().Hangs(stream.ordinal)) {
    RunEarly(stream);
    if (!stream.work.front().run()) break;
    stream.work.pop_front();
    ++stream.done;
  }
  stream.running = false;
  return stream.done >= mark;
}

bool EmulatedStreams::Run(StreamHandle handle) {
  std::lock_guard lock(mutex_);
  if (handle == nullptr) return true;
  Stream& stream = *Idle(handle);
  return RunTo(stream, stream.enqueued);
}

void EmulatedStreams::Forget() {
  std::lock_guard lock(mutex_);
  for (const auto& known : all_) {
    const std::shared_ptr<Stream> stream = known.lock();
    if (stream == nullptr) continue;
    stream->work.clear();
    stream->done = stream->enqueued;
  }
  ++EmulatedDevice::Get().lives;  // before calls that were left behind could go on
  EmulatedDevice::Get().hangs = false;
}

void EmulatedStreams::RunDevice(int ordinal) {
  std::lock_guard lock(mutex_);
  for (const auto& known : all_) {
    const std::shared_ptr<Stream> stream = known.lock();
    if (stream != nullptr && stream->ordinal == ordinal) RunTo(*stream, stream->enqueued);
  }
}

EventHandle EmulatedStreams::OpenEvent(int ordinal) {
  auto* const event = new EmulatedEvent;
  event->ordinal = ordinal;
  return event;
}

void EmulatedStreams::CloseEvent(EventHandle event) { delete static_cast<EmulatedEvent*>(event); }

void EmulatedStreams::Record(StreamHandle handle, EventHandle event) {
  std::lock_guard lock(mutex_);
  auto& own = *static_cast<EmulatedEvent*>(event);
  ANNULUS_CHECK(own.ordinal == Of(handle)->ordinal) << "an event of another device's stream";
  own.time = std::make_shared<std::chrono::steady_clock::time_point>();
  own.stream = Idle(handle);
  Stream& stream = *own.stream;
  stream.work.push_back({.run = [time = own.time] {
    *time = std::chrono::steady_clock::now();
    return true;
  }});
  own.mark = ++stream.enqueued;
  if (!late_) RunTo(stream, own.mark);
}

void EmulatedStreams::Await(StreamHandle handle, EventHandle event) {
  std::lock_guard lock(mutex_);
  const auto& awaited = *static_cast<EmulatedEvent*>(event);
  if (awaited.stream == nullptr) return;
  Stream& stream = *Idle(handle);
  stream.work.push_back(
      {.run = [from = awaited.stream, mark = awaited.mark] { return RunTo(*from, mark); }});
  ++stream.enqueued;
  if (!late_) RunTo(stream, stream.enqueued);
}

bool EmulatedStreams::Reached(EventHandle event) {
  std::lock_guard lock(mutex_);
  const auto& own = *static_cast<EmulatedEvent*>(event);
  return own.stream == nullptr || RunTo(*own.stream, own.mark);
}

std::chrono::steady_clock::time_point EmulatedStreams::TimeOf(EventHandle event) {
  const auto& own = *static_cast<EmulatedEvent*>(event);
  ANNULUS_CHECK(own.time != nullptr) << "an event that was not recorded";
  return *own.time;
}

}  // namespace annulus::cuda

#include "server/net/control_budget.h"

#include <algorithm>

namespace annulus::server {
namespace {

bool NeedsAnswer(const FrameReader& frame) {
  return (frame.type() == http2::kPing || frame.type() == http2::kSettings) &&
         !frame.has(http2::kAck);
}

bool IsAnswer(const FrameReader& frame) {
  return (frame.type() == http2::kPing || frame.type() == http2::kSettings) &&
         frame.has(http2::kAck);
}

// Whether the frame is the beginning or the message of a call.
bool CarriesACall(const FrameReader& frame, ControlBudget::Call call) {
  if (frame.type() == http2::kHeaders) return call == ControlBudget::Call::kNew;
  return frame.type() == http2::kData && call == ControlBudget::Call::kOpen && frame.size() > 0;
}

// The number of frames that a frame without a message counts as.
double Cost(const FrameReader& frame, ControlBudget::Call call) {
  // Blocks of headers have a limit of their own. Data after the end of its call was sent before the
  // client knew of that end.
  if (frame.type() <= http2::kHeaders || frame.type() == http2::kContinuation) return 1;
  if (frame.type() == http2::kReset && call == ControlBudget::Call::kOpen) {
    return ControlBudget::kResetCost;
  }
  return 1 + static_cast<double>(frame.size()) / ControlBudget::kBytesPerFrame;
}

}  // namespace

void ControlBudget::Earn(double frames) { shared_->Add(own_.Add(frames)); }

// Whether the frame is an answer that the server waits for.
bool ControlBudget::TakeAnswer(const FrameReader& frame) {
  if (!IsAnswer(frame) || asked_ == 0) return false;
  --asked_;
  return true;
}

bool ControlBudget::TakeFromClient(const FrameReader& frame, Call call, SteadyTime now) {
  if (CarriesACall(frame, call)) {
    Earn(frame.type() == http2::kData ? static_cast<double>(frame.size()) / kMessageBytesPerFrame
                                      : 0);
    return true;
  }
  if (TakeAnswer(frame)) return true;
  if (NeedsAnswer(frame) && ++unanswered_ > kMostUnanswered) return false;
  const double cost = Cost(frame, call);
  return own_.Take(cost, now) || shared_->Take(cost, now);
}

void ControlBudget::TakeFromServer(const FrameReader& frame) {
  if (frame.type() == http2::kData) {
    Earn(kPerAnswerFrame + static_cast<double>(frame.size()) / kMessageBytesPerFrame);
  }
  if (IsAnswer(frame)) unanswered_ = std::max(unanswered_ - 1, 0);
  if (NeedsAnswer(frame)) ++asked_;
}

}  // namespace annulus::server

#include "server/http/http_connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/base/errors.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using Outcome = PeerStream::Outcome;

constexpr milliseconds kTimeToPart{1000};  // how long to wait for the peer to close
constexpr size_t kReadBytes = size_t{16} << 10;
// Steps before other connections have their turn.
constexpr int kSteps = 8;
constexpr uint32_t kHangUp = EPOLLRDHUP;
constexpr size_t kLeastBytesPerSecond = 1024;
// Of a body that is taken in parts.
constexpr size_t kPartBytes = 4 * BodyBytes::kPiece;
constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

absl::Status BodyTooLate() {
  return absl::DeadlineExceededError(absl::StrCat("the request body arrived too slowly: at least ",
                                                  kLeastBytesPerSecond,
                                                  " bytes a second are needed"));
}

absl::Status AsStatus(const HttpFault& fault, size_t most_bytes) {
  if (fault.status != 413) return absl::InvalidArgumentError(fault.message);
  return ReasonError(absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_MESSAGE_TOO_LARGE,
                     fault.message, {{"available", absl::StrCat(most_bytes)}});
}

}  // namespace

HttpConnection::HttpConnection(std::unique_ptr<PeerStream> stream, std::string peer,
                               const HttpLimits& limits, HttpService& service,
                               std::shared_ptr<MemoryBudget> budget, ReplyMaker replies,
                               SteadyTime now)
    : stream_(std::move(stream)),
      peer_(std::move(peer)),
      limits_(limits),
      service_(service),
      budget_(std::move(budget)),
      replies_(std::move(replies)),
      peer_number_(service.AddPeer(peer_)),
      events_(EPOLLIN) {
  AwaitRequest(now);
}

HttpConnection::~HttpConnection() {
  EndExchange(/*gone=*/true);
  service_.RemovePeer(peer_number_);
}

void HttpConnection::EndExchange(bool gone) {
  if (exchange_ == nullptr) return;
  if (gone) exchange_->OnGone();
  exchange_->OnOver();
  exchange_.reset();
}

HttpConnection::Next HttpConnection::Advance(SteadyTime now) {
  for (int step = 0; step < kSteps; ++step) {
    Next next = Next::kWait;
    if (written_ < output_.size()) {
      next = Write(now);
    } else if (phase_ == Phase::kParting) {
      next = Part(now);
    } else if (phase_ == Phase::kAnswering) {
      events_ = kHangUp;
    } else {
      next = ReadRequest(now);
    }
    if (next != Next::kAgain) return next;
  }
  return Next::kAgain;
}

HttpConnection::Next HttpConnection::Wait(Outcome outcome) {
  events_ = (outcome == Outcome::kWaitToWrite ? EPOLLOUT : EPOLLIN) |
            (phase_ == Phase::kAnswering ? kHangUp : 0);
  return Next::kWait;
}

HttpConnection::Next HttpConnection::OnHangUp() {
  // Otherwise the end shows in the next read, after the bytes before it.
  return phase_ == Phase::kAnswering ? Next::kClose : Next::kAgain;
}

void HttpConnection::AwaitRequest(SteadyTime now) {
  phase_ = Phase::kIdle;
  idle_since_ = now;
  deadline_ = now + limits_.idle_time;
  ++request_;
  output_ = std::string();
  written_ = 0;
  body_.reset();
  parser_.emplace(limits_.request, [this](absl::string_view part) { return body_->Append(part); });
}

HttpConnection::Next HttpConnection::ReadRequest(SteadyTime now) {
  // Bytes of a pipelined request may have come with the one before it.
  if (!input_.empty()) {
    const size_t taken = parser_->Take(input_);
    input_.erase(0, taken);
    if (taken > 0 || parser_->fault().has_value()) return Parse(now);
  }
  return ReadMore(now);
}

HttpConnection::Next HttpConnection::ReadMore(SteadyTime now) {
  std::array<char, kReadBytes> buffer;
  const auto [outcome, size] = stream_->Read(buffer.data(), buffer.size());
  if (outcome == Outcome::kEnded) return Next::kClose;
  if (outcome != Outcome::kMoved) {
    if (input_.empty()) input_ = std::string();  // an idle connection keeps no memory
    return Wait(outcome);
  }
  if (input_.empty()) {  // so it is with most parts of a body
    const size_t taken = parser_->Take({buffer.data(), size});
    input_.append(buffer.data() + taken, size - taken);
  } else {
    input_.append(buffer.data(), size);
    input_.erase(0, parser_->Take(input_));
  }
  return Parse(now);
}

HttpConnection::Next HttpConnection::Parse(SteadyTime now) {
  if (phase_ == Phase::kIdle && parser_->begun()) {
    phase_ = Phase::kHead;
    deadline_ = now + limits_.head_time;
  }
  if (phase_ == Phase::kBody) {
    if (!parser_->body_error().ok()) return RefuseBody(parser_->body_error(), now);
    if (parser_->fault().has_value()) return RefuseFault(now);
    SetBodyDeadline();
  } else {
    if (parser_->fault().has_value()) {
      keep_alive_ = false;
      Answer(service_.OnFault(*parser_->fault()), false, true, now);
      return Next::kAgain;
    }
    if (parser_->stage() == RequestParser::Stage::kHead) return Next::kAgain;
    if (const Next next = OnHead(now); next != Next::kAgain || phase_ != Phase::kBody) return next;
    if (parser_->fault().has_value()) return RefuseFault(now);
  }
  if (parser_->stage() == RequestParser::Stage::kDone) return OnBodyEnd(now);
  const bool is_part = exchange_->takes_parts() && body_->size() >= kPartBytes;
  return is_part ? PassOnPart(now) : Next::kAgain;
}

HttpConnection::Next HttpConnection::RefuseFault(SteadyTime now) {
  const bool parts = exchange_->takes_parts();
  const size_t most = parts ? limits_.request.body_bytes : limits_.whole_body;
  return RefuseBody(AsStatus(*parser_->fault(), most), now);
}

void HttpConnection::SetBodyDeadline() {
  const size_t bytes = passed_on_ + body_->size();
  deadline_ = body_since_ + limits_.body_time + milliseconds(bytes * 1000 / kLeastBytesPerSecond);
}

HttpConnection::Next HttpConnection::OnHead(SteadyTime now) {
  HttpRequest request = std::move(parser_->request());
  const bool has_body = parser_->stage() != RequestParser::Stage::kDone;
  const bool with_body = request.method != "HEAD";
  keep_alive_ = request.keep_alive && limits_.keep_alive;
  request.certificate_names = stream_->certificate_names();
  request.connection = peer_number_;
  auto opening = service_.Open(std::move(request), peer_, replies_(request_));
  if (service_.IsCondemned(peer_number_)) return Next::kClose;
  if (const HttpAnswer* const answer = std::get_if<HttpAnswer>(&opening)) {
    // After an unread body, the start of the next request is unknown.
    keep_alive_ = keep_alive_ && !has_body;
    Answer(*answer, keep_alive_, with_body, now);
    return Next::kAgain;
  }
  exchange_ = std::get<std::shared_ptr<HttpExchange>>(std::move(opening));
  phase_ = Phase::kBody;
  body_.emplace(budget_, exchange_->body_share());
  body_since_ = now;
  passed_on_ = 0;
  deadline_ = now + limits_.body_time;
  if (!exchange_->takes_parts()) parser_->LimitBody(limits_.whole_body);
  if (parser_->fault().has_value()) return Next::kAgain;
  if (has_body && parser_->expects_continue() && input_.empty()) {
    interim_ = true;
    Queue(kContinue, HttpReply::End::kMore, now);
  }
  return Next::kAgain;
}

// Nothing begins for a client that has left already: many may come and leave while this thread is
// busy, and would fill the queue of others.
HttpConnection::Next HttpConnection::OnBodyEnd(SteadyTime now) {
  if (stream_->peer_has_left()) return RefuseBody(ClientLeftError(), now);
  AwaitAnswer(now);
  exchange_->Start(*std::move(body_));
  body_.reset();
  return Next::kAgain;
}

HttpConnection::Next HttpConnection::PassOnPart(SteadyTime now) {
  AwaitAnswer(now);
  passed_on_ += body_->size();
  passed_on_at_ = now;
  exchange_->OnPart(*std::move(body_));
  body_.emplace(budget_, exchange_->body_share());
  return Next::kAgain;
}

HttpConnection::Next HttpConnection::RefuseBody(const absl::Status& status, SteadyTime now) {
  const absl::Status reason = status;  // of the parser, which may go
  keep_alive_ = false;
  AwaitAnswer(now);
  body_.reset();
  exchange_->Refuse(reason);
  return Next::kAgain;
}

void HttpConnection::AwaitAnswer(SteadyTime now) {
  phase_ = Phase::kAnswering;
  deadline_ = limits_.heartbeat.count() > 0 ? now + limits_.heartbeat : SteadyTime::max();
}

void HttpConnection::Answer(const HttpAnswer& answer, bool keep_alive, bool with_body,
                            SteadyTime now) {
  phase_ = Phase::kAnswering;
  Queue(Serialize(answer, keep_alive, with_body), HttpReply::End::kLast, now);
}

void HttpConnection::Queue(std::string bytes, HttpReply::End end, SteadyTime now) {
  output_ = std::move(bytes);
  written_ = 0;
  end_ = end;
  deadline_ = now + limits_.unread_time;
}

HttpConnection::Next HttpConnection::Take(uint64_t request, std::string bytes, HttpReply::End end,
                                          SteadyTime now) {
  const bool awaited = phase_ == Phase::kAnswering || phase_ == Phase::kBody;
  if (request != request_ || !awaited || exchange_ == nullptr) return Next::kWait;
  if (phase_ == Phase::kBody) {  // an exchange that takes parts has ended by itself
    phase_ = Phase::kAnswering;
    if (std::exchange(interim_, false)) bytes.insert(0, output_, written_);
  }
  if (end == HttpReply::End::kBreak && bytes.empty()) return Next::kClose;
  if (end == HttpReply::End::kReadOn) {
    phase_ = Phase::kBody;
    body_since_ += now - passed_on_at_;
    SetBodyDeadline();
    return Advance(now);
  }
  // Behind a body that nobody reads, no next request can be found.
  if (parser_->stage() != RequestParser::Stage::kDone) keep_alive_ = false;
  Queue(std::move(bytes), end, now);
  return Advance(now);
}

HttpConnection::Next HttpConnection::Write(SteadyTime now) {
  const auto [outcome, size] = stream_->Write(output_.data() + written_, output_.size() - written_);
  if (outcome == Outcome::kEnded) return Next::kClose;
  if (outcome != Outcome::kMoved) return Wait(outcome);
  written_ += size;
  return written_ < output_.size() ? Next::kAgain : OnWritten(now);
}

HttpConnection::Next HttpConnection::OnWritten(SteadyTime now) {
  output_ = std::string();
  written_ = 0;
  if (std::exchange(interim_, false)) {
    deadline_ = now + limits_.body_time;
    body_since_ = now;
    return Next::kAgain;
  }
  if (end_ == HttpReply::End::kBreak) return Next::kClose;
  if (end_ == HttpReply::End::kMore) {
    AwaitAnswer(now);
    exchange_->OnWritten();
    return Next::kAgain;
  }
  EndExchange(/*gone=*/false);
  if (keep_alive_) {
    AwaitRequest(now);
    return Next::kAgain;
  }
  // Do not close yet: with unread bytes that would reset the connection, and the peer could lose
  // the answer.
  stream_->EndWriting();
  phase_ = Phase::kParting;
  deadline_ = now + kTimeToPart;
  return Next::kAgain;
}

HttpConnection::Next HttpConnection::Part(SteadyTime) {
  std::array<char, kReadBytes> buffer;
  const auto [outcome, size] = stream_->Read(buffer.data(), buffer.size());
  if (outcome == Outcome::kEnded) return Next::kClose;
  return outcome == Outcome::kMoved ? Next::kAgain : Wait(outcome);
}

HttpConnection::Next HttpConnection::OnDeadline(SteadyTime now) {
  if (written_ < output_.size()) return Next::kClose;  // the client does not read
  switch (phase_) {
    case Phase::kHead:
      keep_alive_ = false;
      Answer(service_.OnFault({408, "the request line and headers arrived too slowly"}), false,
             true, now);
      return Advance(now);
    case Phase::kBody:
      RefuseBody(BodyTooLate(), now);
      return Advance(now);
    case Phase::kAnswering:
      AwaitAnswer(now);
      exchange_->OnBeat();
      return Next::kWait;
    default:
      return Next::kClose;
  }
}

}  // namespace annulus::server

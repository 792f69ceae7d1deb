#ifndef ANNULUS_TESTS_INTEGRATION_RING_FAULTS_ORDERS_H_
#define ANNULUS_TESTS_INTEGRATION_RING_FAULTS_ORDERS_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace annulus::testing {

// A moment of a worker in its ring.
enum class Moment : uint8_t {
  kPlanned,   // a step has come, and the ranks here have not begun it
  kLayer,     // a rank is about to send a message of a layer to another
  kSampled,   // a rank has sampled a token, and nobody knows it
  kWires,     // wires for the next epoch are open, and nobody knows it
  kForm,      // the next epoch has begun, and the worker does not know it
  kRepair,    // as kPlanned, of a step that computes lost rows again
  kRepaired,  // such a step has ended, and nobody knows it
};
inline constexpr const char* kMomentNames[] = {"planned", "layer",  "sampled", "wires",
                                               "form",    "repair", "repaired"};

// What a test orders of this process, which is a worker, by the FIFO that the variable FAULT_ORDERS
// names: a line for each.
//   stop SERIAL MOMENT COUNT  says "fault SERIAL armed"; the thread that is the COUNT-th from now
//   on
//                             to reach the moment says "fault SERIAL reached", and waits there
//   go SERIAL                 lets it go on
//   flip SERIAL               says "fault SERIAL armed"; of the next message to another rank flips
//   a
//                             bit, and says "fault SERIAL flipped"
//   tell SERIAL               says "fault SERIAL told"
// Says lines on standard output. Without the variable no order comes. Thread-safe.
class Orders {
 public:
  // Those of this process. The first call begins to read.
  static Orders& Get();

  // A thread is at the moment: waits there if that was ordered, for two minutes at most.
  void Pass(Moment moment);
  // The serial of a flip that is due now; each once.
  std::optional<int> TakeFlip();
  void Say(const std::string& line);

 private:
  struct Stop {
    int serial = 0;
    std::string moment;
    int count = 1;
  };

  explicit Orders(const char* path);
  void Read(int descriptor);
  void Take(const std::string& line);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Stop> stop_;
  std::optional<int> flip_;
  int gone_ = 0;  // the last serial that may go on
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_INTEGRATION_RING_FAULTS_ORDERS_H_

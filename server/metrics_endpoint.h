#ifndef ANNULUS_SERVER_METRICS_ENDPOINT_H_
#define ANNULUS_SERVER_METRICS_ENDPOINT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api.h"

namespace prometheus {
class Collectable;
class Exposer;
}  // namespace prometheus

namespace annulus {

// Serves /metrics over HTTP in Prometheus's text form. The only file that knows Prometheus types.
class MetricsEndpoint {
 public:
  // Called for every scrape, from any thread.
  using Collector = std::function<std::vector<MetricFamily>()>;

  // Listens on "HOST:PORT". UNAVAILABLE where that cannot be had, for example because it is in use.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(const std::string& address,
                                                                Collector collector);
  ~MetricsEndpoint();  // waits for scrapes under way

  int port() const;

 private:
  MetricsEndpoint(std::shared_ptr<prometheus::Collectable> collectable,
                  std::unique_ptr<prometheus::Exposer> exposer);

  const std::shared_ptr<prometheus::Collectable> collectable_;
  const std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_METRICS_ENDPOINT_H_

#ifndef ANNULUS_SERVER_CONFIG_SERVER_CONFIG_H_
#define ANNULUS_SERVER_CONFIG_SERVER_CONFIG_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/api.h"

namespace annulus {

// kNamed: GPUs that are only planned for, see ServerConfig::planned_gpu.
enum class DeviceChoice : uint8_t { kAuto, kCpu, kCuda, kNamed };
// Pages of 2 MiB or more for large blocks of the host's memory: as the system does by itself, asked
// for, or from a pool that the administrator reserved.
enum class HugePagesChoice : uint8_t { kAuto, kOff, kTransparent, kExplicit };
enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };
enum class LogFormat : uint8_t { kText, kJson };

// Everything that the daemon can be told. The defaults stand in the option table (options.h) and
// nowhere else: LoadConfig parses them first.
struct ServerConfig {
  EngineOptions engine;
  DeviceChoice device = DeviceChoice::kAuto;
  std::string planned_gpu;          // the kind of GPU that --plan is for
  size_t planned_memory_bytes = 0;  // of the machine or of each GPU, for --plan; 0: what there is
  bool numa = true;                 // keep each rank on one memory node, where there are several
  HugePagesChoice huge_pages = HugePagesChoice::kAuto;
  std::string convert_out;        // the directory that --convert writes
  std::string served_model_name;  // what clients call the model; never empty after LoadConfig

  std::string listen;  // HOST:PORT of gRPC
  // Unix socket of AdminService: its path, "auto" (see AutomaticAdminSocket), or empty: none.
  std::string admin_listen;
  int max_connections = 0;  // of gRPC, at once
  // How long a connection of gRPC may be silent before it must give a sign of life.
  std::chrono::milliseconds keepalive_time{};
  std::string metrics;          // HOST:PORT of the Prometheus endpoint; empty: none
  bool metrics_tls = false;     // serves metrics over HTTPS with the certificate of gRPC
  std::string tls_certificate;  // PEM files; both or neither
  std::string tls_key;
  std::string auth_token_file;  // clients must send its first line as a bearer token
  std::string tokens_file;      // YAML: hashes of tokens, their tenants, roles and quotas
  std::string tls_client_ca;    // PEM: who signs the certificates that clients must have
  bool insecure = false;        // serve others than this machine without TLS or without identity
  // The token for calls on `listen` that change the server for everybody; empty: there is none.
  std::string admin_token_file;

  std::chrono::milliseconds grace_time{};      // how long a drain lets admitted work go on
  std::chrono::milliseconds upload_timeout{};  // longest silence of an upload
  size_t max_document_bytes = 0;               // of one document, as UTF-8
  size_t max_documents_memory = 0;             // bytes of all, uploads in progress included
  int max_documents = 0;
  size_t max_prompts_memory = 0;              // bytes of the prompts of all calls under way
  size_t max_replay_memory = 0;               // bytes of the answers kept for calls that ask again
  std::chrono::milliseconds attach_window{};  // how long a complete answer is kept for them
  size_t max_message_bytes = 0;               // of one gRPC message
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONFIG_SERVER_CONFIG_H_

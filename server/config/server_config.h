#ifndef ANNULUS_SERVER_CONFIG_SERVER_CONFIG_H_
#define ANNULUS_SERVER_CONFIG_SERVER_CONFIG_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/api.h"

namespace annulus::server {

// kNamed: a kind of GPU that --plan calculates for (ServerConfig::planned_gpu).
enum class DeviceChoice : uint8_t { kAuto, kCpu, kCuda, kNamed };
// Huge pages (2 MiB or more) for large blocks of host memory. kOff leaves it to the system,
// kTransparent asks the kernel for transparent ones, kExplicit uses the pool that the administrator
// reserved, and kAuto is kTransparent if the machine supports it.
enum class HugePagesChoice : uint8_t { kAuto, kOff, kTransparent, kExplicit };
enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };
enum class LogFormat : uint8_t { kText, kJson };

// Limits of DocumentStore.
struct DocumentLimits {
  size_t max_document_bytes = 0;  // size of one document, as UTF-8
  size_t max_memory = 0;          // bytes of all documents and running uploads
  int max_documents = 0;
  std::string folder = {};  // keeps the bytes of documents across restarts; empty: none does
  size_t folder_bytes = 0;  // of all files in it
};

// Limits of AttachTable, which keeps answers for repeated request_ids.
struct AttachLimits {
  size_t memory = 0;                    // bytes of all kept events
  std::chrono::milliseconds window{0};  // how long a complete answer is kept
  std::chrono::milliseconds linger{0};  // how long a request that nobody follows goes on, if it may
};

// The configuration of the daemon. Defaults are those of EngineOptions and, for all else, only in
// the option table (options.h), which LoadConfig parses first; the values here are placeholders.
struct ServerConfig {
  EngineOptions engine;
  DeviceChoice device{};
  std::string planned_gpu;          // the kind of GPU for --plan, if `device` is kNamed
  size_t planned_memory_bytes = 0;  // for --plan: of the machine or of each GPU; 0: detect it
  bool numa = false;                // on machines with several memory nodes, keep a rank on one
  HugePagesChoice huge_pages{};
  std::string convert_out;        // the directory that --convert writes
  std::string served_model_name;  // the model's name for clients; never empty after LoadConfig

  std::string listen;  // HOST:PORT of gRPC
  // Unix socket of AdminService: a path, "auto" (see AutomaticAdminSocket), or empty (none).
  std::string admin_listen;
  int max_connections = 0;  // gRPC connections at a time
  // How long a gRPC connection may be silent before the server pings it.
  std::chrono::milliseconds keepalive_time{};
  std::string http;  // HOST:PORT of the APIs over HTTP; empty: none
  // How often something is written on an HTTP request that waits for its answer.
  std::chrono::milliseconds http_heartbeat{};
  bool http_page = false;                 // serve the page for people at "/"
  std::vector<std::string> http_origins;  // web pages that may use the APIs: "https://a.example"
  std::string metrics;                    // HOST:PORT of the Prometheus endpoint; empty: none
  std::string otlp_endpoint;              // HOST:PORT of a collector of traces; empty: none
  bool metrics_tls = false;     // serve metrics over HTTPS, with the same certificate as gRPC
  std::string tls_certificate;  // PEM files; both or neither
  std::string tls_key;
  std::string auth_token_file;  // its first line is the bearer token that clients must send
  std::string tokens_file;      // YAML: hashes of tokens, their tenants, roles and quotas
  std::string tls_client_ca;    // PEM: authorities; clients must have a certificate they signed
  bool insecure = false;        // allow other machines without TLS or without an identity
  // Its first line is the token for calls on `listen` that change the server for everybody. Empty:
  // no such token.
  std::string admin_token_file;

  // A ring whose ranks are in several processes. At most one of the two addresses is set.
  std::string workers_listen;      // HOST:PORT on which a coordinator's workers dial
  std::string join;                // HOST:PORT of the coordinator whose worker this is
  int local_ranks = 0;             // of the ring, in this process; counts only with one of the two
  std::string worker_name;         // empty: HOST-PID
  bool allow_public_wire = false;  // see ChooseWireDevices
  std::string wire_devices;        // what it chose; empty: not yet
  std::chrono::milliseconds worker_silence{};  // see EngineWorkers
  // How long requests wait for a worker in place of one that is lost.
  std::chrono::milliseconds replacement_timeout{};
  int tolerated_ranks = 0;  // see EngineWorkers

  std::chrono::milliseconds grace_time{};      // how long admitted work may continue in a drain
  std::chrono::milliseconds upload_timeout{};  // longest silence of an upload
  DocumentLimits documents;
  AttachLimits attach;
  size_t max_prompts_memory = 0;  // bytes of all running calls, see CallMemory
  size_t max_message_bytes = 0;   // size of one gRPC message
  LogLevel log_level{};
  LogFormat log_format{};

  // Whether callers must prove who they are, by a token or a certificate.
  bool knows_callers() const {
    return !auth_token_file.empty() || !tokens_file.empty() || !tls_client_ca.empty();
  }
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_SERVER_CONFIG_H_

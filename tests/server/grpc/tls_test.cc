// TLS with a certificate made for the test.

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/server/certificates.h"
#include "tests/server/http2_peer.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

std::string WriteTemporary(const std::string& name, const std::string& content) {
  static const testing::TempDirectory directory;
  directory.Write(name, content);
  return directory.path() / name;
}

TEST(TlsTest, ServesClientsThatTrustTheCertificate) {
  const TestIdentity identity = MakeIdentity();
  TestServer server({"--tls-certificate", WriteTemporary("cert.pem", identity.certificate),
                     "--tls-key", WriteTemporary("key.pem", identity.key), "--auth-token-file",
                     WriteTemporary("tls_token", "s3cret\n")});
  server.Serve();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = identity.certificate;
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("localhost");
  const auto stub = v1::InferenceService::NewStub(
      grpc::CreateCustomChannel(server.address(), grpc::SslCredentials(options), arguments));
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer s3cret");
  const StreamResult result = ReadStream(*stub, TextStreamRequest("x"), &context);
  EXPECT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.text, "Hello");

  grpc::ClientContext plain_context;
  EXPECT_EQ(
      ReadStream(*server.inference(), TextStreamRequest("x"), &plain_context).status.error_code(),
      grpc::StatusCode::UNAVAILABLE);
}

// A channel of its own connection that trusts `server`, with the client's certificate if there is
// one.
std::unique_ptr<v1::InferenceService::Stub> Client(const TestServer& server,
                                                   const std::string& trusted,
                                                   const TestIdentity* own = nullptr) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = trusted;
  if (own != nullptr) {
    options.pem_cert_chain = own->certificate;
    options.pem_private_key = own->key;
  }
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("localhost");
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::InferenceService::NewStub(
      grpc::CreateCustomChannel(server.address(), grpc::SslCredentials(options), arguments));
}

bool Answers(v1::InferenceService::Stub& stub) {
  return ReadStream(stub, TextStreamRequest("x")).status.ok();
}

TEST(TlsTest, ANewCertificateIsUsedAndNoStreamIsLost) {
  const TestIdentity before = MakeIdentity();
  const TestIdentity after = MakeIdentity();
  const testing::TempDirectory directory;
  const auto write = [&](const std::string& certificate, const std::string& key) {
    directory.Write("key.pem", key);
    directory.Write("cert.pem", certificate);
  };
  write(before.certificate, before.key);
  TestServer server({"--tls-certificate", directory.path() / "cert.pem", "--tls-key",
                     directory.path() / "key.pem"});
  server.Serve();
  server.engine().set_scripter([](const RequestSpec& spec) {
    return spec.prompt.size() > 3 ? Endless(std::chrono::milliseconds(1)) : FakeScript();
  });
  const auto old_client = Client(server, before.certificate);
  grpc::ClientContext context;
  const auto stream = old_client->StreamGenerate(&context, TextStreamRequest("on and on"));
  v1::StreamGenerateResponse event;
  ASSERT_TRUE(stream->Read(&event));
  // A key that is not the certificate's is left where it is.
  write(before.certificate, after.key);
  server.server().RequestReload();
  EXPECT_TRUE(Answers(*Client(server, before.certificate)));
  write(after.certificate, after.key);
  EXPECT_TRUE(Eventually([&] { return Answers(*Client(server, after.certificate)); }));
  EXPECT_FALSE(Answers(*Client(server, before.certificate)));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(stream->Read(&event)) << i;
  EXPECT_TRUE(Answers(*old_client)) << "on the connection that stands";
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST(TlsTest, ClientsNeedACertificateThatTellsTheirTenant) {
  const TestIdentity own = MakeIdentity();
  const TestIdentity known = MakeIdentity("app.acme.example");
  const TestIdentity nobody = MakeIdentity("nobody.example");
  const TestIdentity stranger = MakeIdentity("app.acme.example");  // by another signer
  const testing::TempDirectory directory;
  directory.Write("cert.pem", own.certificate);
  directory.Write("key.pem", own.key);
  directory.Write("ca.pem", known.certificate + nobody.certificate);
  directory.Write("tokens.yaml",
                  "tenants:\n  - name: acme\n    callers:\n"
                  "      - {certificate: app.acme.example, roles: [generate]}\n");
  std::filesystem::permissions(directory.path() / "tokens.yaml", std::filesystem::perms(0600));
  TestServer server({"--tls-certificate", directory.path() / "cert.pem", "--tls-key",
                     directory.path() / "key.pem", "--tls-client-ca", directory.path() / "ca.pem",
                     "--tokens-file", directory.path() / "tokens.yaml"});
  server.Serve();
  const auto code = [&](const TestIdentity* client) {
    return ReadStream(*Client(server, own.certificate, client), TextStreamRequest("x"))
        .status.error_code();
  };
  EXPECT_EQ(code(&known), grpc::StatusCode::OK);
  EXPECT_EQ(server.engine().submitted().at(0).tenant.name(), "acme");
  EXPECT_EQ(code(&nobody), grpc::StatusCode::UNAUTHENTICATED) << "signed, but not in the file";
  EXPECT_EQ(code(&stranger), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(code(nullptr), grpc::StatusCode::UNAVAILABLE);
}

// The file names an authority whose own signer it does not have.
TEST(TlsTest, AnIntermediateAuthorityIsTrustedByItself) {
  const TestIdentity own = MakeIdentity();
  const TestIdentity root = MakeIdentity("root.example");
  const TestIdentity authority = MakeSigned("ca.example", root, true);
  const TestIdentity client = MakeSigned("app.acme.example", authority, false);
  const TestIdentity other = MakeSigned("app.acme.example", root, false);
  TestServer server({"--tls-certificate", WriteTemporary("cert.pem", own.certificate), "--tls-key",
                     WriteTemporary("key.pem", own.key), "--tls-client-ca",
                     WriteTemporary("authority.pem", authority.certificate)});
  server.Serve();
  EXPECT_TRUE(Answers(*Client(server, own.certificate, &client)));
  EXPECT_FALSE(Answers(*Client(server, own.certificate, &other)));
}

// What another protocol of the same certificate's name would be told must not come from here.
TEST(TlsTest, ClientsMustSpeakHttp2) {
  const TestIdentity identity = MakeIdentity();
  TestServer server({"--tls-certificate", WriteTemporary("cert.pem", identity.certificate),
                     "--tls-key", WriteTemporary("key.pem", identity.key)});
  server.Serve();
  const auto completes = [&](absl::string_view protocols) {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
        SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
    const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context.get()), &SSL_free);
    if (!protocols.empty()) {
      SSL_set_alpn_protos(session.get(), reinterpret_cast<const unsigned char*>(protocols.data()),
                          static_cast<unsigned>(protocols.size()));
    }
    const int descriptor = Connect(server.address());
    SSL_set_fd(session.get(), descriptor);
    char byte;
    // The server's first frame, its SETTINGS, comes once the handshake is complete.
    const bool read = SSL_connect(session.get()) == 1 && SSL_read(session.get(), &byte, 1) == 1;
    close(descriptor);
    return read;
  };
  EXPECT_TRUE(completes("\x02h2"));
  EXPECT_TRUE(completes("\x08http/1.1\x02h2"));
  EXPECT_FALSE(completes("\x08http/1.1"));
  EXPECT_FALSE(completes(""));
}

// A client that stops in the middle of a handshake holds up nobody, and not for long.
TEST(TlsTest, HandshakesHaveALimit) {
  const TestIdentity identity = MakeIdentity();
  TestServer server({"--tls-certificate", WriteTemporary("cert.pem", identity.certificate),
                     "--tls-key", WriteTemporary("key.pem", identity.key), "--keepalive-time",
                     "1s"});
  server.Serve();
  Http2Peer silent(server.address(), std::nullopt);
  Http2Peer half(server.address(), std::nullopt);
  EXPECT_TRUE(half.Send(absl::string_view("\x16\x03\x01\x02\0\x01", 6)));
  Http2Peer other(server.address(), std::nullopt);
  EXPECT_TRUE(other.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
  EXPECT_TRUE(other.WaitForClose(std::chrono::seconds(10)));
  EXPECT_TRUE(Answers(*Client(server, identity.certificate)));
  EXPECT_TRUE(silent.WaitForClose(std::chrono::seconds(20)));
  EXPECT_TRUE(half.WaitForClose(std::chrono::seconds(20)));
}

// A broken certificate must not keep a signer in use that was taken out, nor the other way round.
TEST(TlsTest, EachFileTakesEffectByItself) {
  const TestIdentity own = MakeIdentity();
  const TestIdentity next = MakeIdentity();
  const TestIdentity first = MakeIdentity("first.example");
  const TestIdentity second = MakeIdentity("second.example");
  const testing::TempDirectory directory;
  directory.Write("cert.pem", own.certificate);
  directory.Write("key.pem", own.key);
  directory.Write("ca.pem", first.certificate);
  TestServer server({"--tls-certificate", directory.path() / "cert.pem", "--tls-key",
                     directory.path() / "key.pem", "--tls-client-ca", directory.path() / "ca.pem"});
  server.Serve();
  EXPECT_TRUE(Answers(*Client(server, own.certificate, &first)));
  directory.Write("key.pem", next.key);  // not the certificate's
  directory.Write("ca.pem", second.certificate);
  server.server().RequestReload();
  EXPECT_TRUE(Eventually([&] { return Answers(*Client(server, own.certificate, &second)); }));
  EXPECT_FALSE(Answers(*Client(server, own.certificate, &first)));
  directory.Write("ca.pem", "nonsense");
  directory.Write("cert.pem", next.certificate);
  server.server().RequestReload();
  EXPECT_TRUE(Eventually([&] { return Answers(*Client(server, next.certificate, &second)); }));
}

// gRPC takes all certificates of a file or none, so one that is broken further down would close the
// server to everybody.
TEST(TlsTest, BundlesAreReadToTheirEnd) {
  const TestIdentity own = MakeIdentity();
  const TestIdentity client = MakeIdentity("app.acme.example");
  const std::string broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  const testing::TempDirectory directory;
  directory.Write("cert.pem", own.certificate + client.certificate);
  directory.Write("key.pem", own.key);
  directory.Write("ca.pem", own.certificate + client.certificate);
  TestServer server({"--tls-certificate", directory.path() / "cert.pem", "--tls-key",
                     directory.path() / "key.pem", "--tls-client-ca", directory.path() / "ca.pem",
                     "--metrics", "127.0.0.1:0"});
  server.Serve();
  EXPECT_TRUE(Answers(*Client(server, own.certificate, &client)));
  const auto failed = [&](double wanted) {
    return Eventually([&] {
      return ScrapeSamples(server.metrics_address()).at("annulus_reload_failed") == wanted;
    });
  };
  for (const char* file : {"ca.pem", "cert.pem"}) {
    directory.Write(file, own.certificate + broken + client.certificate);
    ASSERT_TRUE(failed(1)) << file;
    EXPECT_TRUE(Answers(*Client(server, own.certificate, &client))) << file;
    directory.Write(file, own.certificate + client.certificate + "\n# no certificate follows\n");
    ASSERT_TRUE(failed(0)) << file;
    EXPECT_TRUE(Answers(*Client(server, own.certificate, &client))) << file;
  }
}

TEST(TlsTest, MetricsTellWhenEachCertificateEnds) {
  const TestIdentity own = MakeIdentity();
  const TestIdentity signer = MakeIdentity("ca.example", 100'000);
  const TestIdentity other = MakeIdentity("old.example", -60);
  const testing::TempDirectory directory;
  directory.Write("cert.pem", own.certificate);
  directory.Write("key.pem", own.key);
  directory.Write("ca.pem", signer.certificate + other.certificate);
  TestServer server({"--tls-certificate", directory.path() / "cert.pem", "--tls-key",
                     directory.path() / "key.pem", "--tls-client-ca", directory.path() / "ca.pem",
                     "--metrics", "127.0.0.1:0"});
  // Seconds from now.
  const auto left = [&](const std::string& option, int position) {
    return ScrapeSamples(server.metrics_address())
               .at(absl::StrCat("annulus_certificate_expiry_timestamp_seconds{option=\"", option,
                                "\",position=\"", position, "\"}")) -
           static_cast<double>(time(nullptr));
  };
  EXPECT_NEAR(left("tls-certificate", 1), 3600, 30);
  EXPECT_NEAR(left("tls-client-ca", 1), 100'000, 30);
  EXPECT_NEAR(left("tls-client-ca", 2), -60, 30);
  const TestIdentity renewed = MakeIdentity("localhost", 7'000'000);
  directory.Write("key.pem", renewed.key);
  directory.Write("cert.pem", renewed.certificate);
  EXPECT_TRUE(Eventually([&] { return left("tls-certificate", 1) > 6'000'000; }));
}

TEST(TlsTest, FilesThatAreNoPemAreRefused) {
  const TestIdentity identity = MakeIdentity();
  const Logger log(LogLevel::kError);
  ServerConfig config;
  config.listen = "127.0.0.1:0";
  config.tls_certificate = WriteTemporary("not.pem", "nonsense");
  config.tls_key = WriteTemporary("key.pem", identity.key);
  const auto refused = Server::Start(config, log);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  config.tls_certificate = WriteTemporary("cert.pem", identity.certificate);
  config.tls_key = WriteTemporary("other_key.pem", MakeIdentity().key);
  EXPECT_FALSE(Server::Start(config, log).ok());
}

}  // namespace
}  // namespace annulus::server

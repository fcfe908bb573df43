package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/internal/testkit/tlstest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

func writeFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestNoBrokerAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, kfake.Ports(freePort(t)))
		cfg := configWithin(c, 5*time.Second)
		c.Close()
		conn := connect(t, cfg)
		s := conn.Sink(orders())
		_, resume := s.Resume(t.Context())
		_, look := s.Checkpoint(t.Context())
		for _, err := range []error{conn.Check(t.Context()), resume, look, s.Check(t.Context()), s.Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(1)))} {
			wantError(t, err, false, nil, "no Kafka broker answers at 127.0.0.1:", "connection refused; is it running?")
		}
	})
}

func TestPortIsSilent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		cfg := configWithin(c, time.Second)
		c.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			return nil, nil, true
		})
		err := connect(t, cfg).Check(t.Context())
		wantError(t, err, false, nil, "no answer from Kafka at 127.0.0.1:", "within 1s")
	})
}

func TestClosedConnection(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		conn := connect(t, configFor(startCluster(t)))
		s := conn.Sink(orders())
		resumeAndCommit(t, s, 0, 1)
		conn.Close()
		wantError(t, conn.Check(t.Context()), false, nil, "is closed")
		bus.WantClosed(t, s)
	})
}

func TestClusterIsTooOld(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]*kversion.Versions{"2.4": kversion.V2_4_0(), "2.5": kversion.V2_5_0(), "2.8": kversion.V2_8_0(), "3.6": kversion.V3_6_0()} {
		t.Run(name, bubbled(func(t *testing.T) {
			conn := connect(t, configFor(startCluster(t, kfake.MaxVersions(v))))
			if name == "2.4" {
				wantError(t, conn.Check(t.Context()), true, nil, "is too old", "from 2.5 on")
				_, err := conn.Sink(orders()).Resume(t.Context())
				wantError(t, err, true, nil, "is too old", "from 2.5 on")
				return
			}
			if err := conn.Check(t.Context()); err != nil {
				t.Error(err)
			}
			s, other := conn.Sink(orders()), conn.Sink(orders())
			resumeAndCommit(t, s, 0, 2)
			resume(t, other)
			commit(t, s, 2, 3)
			wantError(t, other.Commit(t.Context(), nil, sinktest.At(9)), false, checkpoint.ErrConflict)
			resumeAndCommit(t, other, 3, 4)
			wantError(t, s.Commit(t.Context(), nil, sinktest.At(9)), false, checkpoint.ErrConflict)
			// The one that lost has not taken the id back.
			commit(t, other, 4, 5)
			wantFeed(t, s, 5)
		}))
	}
}

func TestPassword(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []kafka.Mechanism{kafka.Plain, kafka.ScramSHA256, kafka.ScramSHA512} {
		t.Run(string(mechanism), bubbled(func(t *testing.T) {
			c := startCluster(t, kfake.EnableSASL(), kfake.Superuser(string(mechanism), "fb", "right"))
			file := writeFile(t, "wrong\n")
			cfg := configWithin(c, 5*time.Second)
			cfg.SASL = kafka.SASL{Mechanism: mechanism, Username: "fb", Password: credential.Secret("file:" + file)}
			conn := connect(t, cfg)
			s := conn.Sink(orders())
			_, err := s.Resume(t.Context())
			for _, err := range []error{err, conn.Check(t.Context())} {
				wantError(t, err, true, nil, "Kafka at 127.0.0.1:", "refuses the credentials (sasl.mechanism \""+string(mechanism)+"\")")
			}
			// It is put right, and taken up without a restart.
			must.Succeed(t, os.WriteFile(file, []byte("right\n"), 0o600))
			if err := conn.Check(t.Context()); err != nil {
				t.Error(err)
			}
			continueTo(t, s, 0, 2)
			must.Succeed(t, os.Remove(file))
			_, err = kafka.Connect(t.Context(), cfg, silent)
			wantError(t, err, true, nil, "sasl.password", "no such file")
		}))
	}
}

func TestProofIsMissing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "fb", "right"))
		cfg := configWithin(c, 5*time.Second)
		wantError(t, connect(t, cfg).Check(t.Context()), false, nil, "closes every connection at once")
		cfg.SASL = kafka.SASL{Mechanism: kafka.ScramSHA512, Username: "fb", Password: "right"}
		wantError(t, connect(t, cfg).Check(t.Context()), true, nil, "refuses the credentials")
	})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	config, ca, cert, key := tlstest.Mutual(t)
	c := startCluster(t, kfake.TLS(config))
	cfg := configFor(c)
	cfg.TLS = kafka.TLS{ClientFiles: credential.ClientFiles{CAFile: ca, CertFile: cert, KeyFile: key}}
	if err := connect(t, cfg).Check(t.Context()); err != nil {
		t.Error(err)
	}
	s := connect(t, cfg).Sink(orders())
	resumeAndCommit(t, s, 0, 1)

	wrong := cfg
	wrong.TLS.CAFile = ""
	wantError(t, connect(t, wrong).Check(t.Context()), true, nil, "the certificate of Kafka at", "is not trusted: x509: ", "set tls.ca_file")
	wrong = cfg
	wrong.TLS.ServerName = "kafka.example.com"
	wantError(t, connect(t, wrong).Check(t.Context()), true, nil, "is not trusted", "kafka.example.com", "tls.server_name")
	wrong = cfg
	wrong.TLS.CertFile, wrong.TLS.KeyFile = "", ""
	wantError(t, connect(t, wrong).Check(t.Context()), true, nil, "refuses the TLS connection", "check tls.cert_file")
	wrong = cfg
	wrong.TLS = kafka.TLS{}
	wantError(t, connect(t, wrong).Check(t.Context()), false, nil, "whether tls and sasl are what it expects on this port")
	web := httptest.NewServer(nil)
	t.Cleanup(web.Close)
	wrong = cfg
	wrong.Brokers = []string{strings.TrimPrefix(web.URL, "http://")}
	wantError(t, connect(t, wrong).Check(t.Context()), true, nil, "does not speak TLS on this port")
}

// rights are the permissions that the documentation lists.
func rights() []kfake.ACL {
	topic := func(name string, ops ...kmsg.ACLOperation) (acls []kfake.ACL) {
		for _, op := range ops {
			acls = append(acls, kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true})
		}
		return acls
	}
	id := func(name string) (acls []kfake.ACL) {
		for _, op := range []kmsg.ACLOperation{kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe} {
			acls = append(acls, kfake.ACL{Resource: kmsg.ACLResourceTypeTransactionalId, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true})
		}
		return acls
	}
	all := []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationCreate, kmsg.ACLOperationDescribeConfigs}
	return slices.Concat(topic("shop.orders", all...), topic(checkpoints, all...), id(transactionalID))
}

func TestRights(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		without func(kfake.ACL) bool
		exist   bool
		want    []string
	}{
		"all that are listed": {func(kfake.ACL) bool { return false }, false, nil},
		"all but to the configuration": {
			func(a kfake.ACL) bool { return a.Operation == kmsg.ACLOperationDescribeConfigs }, false, nil,
		},
		"none to write": {
			func(a kfake.ACL) bool { return a.Name == "shop.orders" && a.Operation == kmsg.ACLOperationWrite }, true,
			[]string{"this user may not WRITE topic shop.orders; run 'kafka-acls.sh --bootstrap-server 127.0.0.1:", "--allow-principal User:fb", "--topic shop.orders'"},
		},
		"none to read checkpoints": {
			func(a kfake.ACL) bool { return a.Name == checkpoints && a.Operation == kmsg.ACLOperationRead }, true,
			[]string{"this user may not READ topic feedbridge.checkpoints"},
		},
		"none to the topic": {
			func(a kfake.ACL) bool { return a.Name == "shop.orders" }, true,
			[]string{"TOPIC_AUTHORIZATION_FAILED", "run 'kafka-acls.sh --bootstrap-server 127.0.0.1:", "--operation DescribeConfigs --topic shop.orders --topic feedbridge.checkpoints'"},
		},
		"none to create": {
			func(a kfake.ACL) bool { return a.Operation == kmsg.ACLOperationCreate }, false,
			[]string{"there is no topic feedbridge.checkpoints, and this user may not create it; create it with 'kafka-topics.sh", "--operation Create --topic feedbridge.checkpoints'"},
		},
		"none to the transactional id": {
			func(a kfake.ACL) bool { return a.Resource == kmsg.ACLResourceTypeTransactionalId }, true,
			[]string{`this user may not use the transactional id "feedbridge.shop.orders/orders"`, "--operation Write --operation Describe --transactional-id"},
		},
		"none to write under the transactional id": {
			func(a kfake.ACL) bool {
				return a.Resource == kmsg.ACLResourceTypeTransactionalId && a.Operation == kmsg.ACLOperationWrite
			}, true,
			[]string{`this user may not use the transactional id "feedbridge.shop.orders/orders"`},
		},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			var acls []kfake.ACL
			for _, a := range rights() {
				if !test.without(a) {
					acls = append(acls, a)
				}
			}
			c := startCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root"), kfake.User("PLAIN", "fb", "right", acls...))
			if test.exist {
				must.Succeed(t, errors.Join(c.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "compact"}), c.CreateTopic("shop.orders", 1, nil)))
			}
			cfg := configFor(c)
			cfg.SASL = kafka.SASL{Mechanism: kafka.Plain, Username: "fb", Password: "right"}
			s := connect(t, cfg).Sink(orders())
			_, err := s.Resume(t.Context())
			if err == nil {
				err = s.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2))
			}
			if test.want == nil {
				must.Succeed(t, errors.Join(err, s.Check(t.Context())))
				return
			}
			wantError(t, err, true, nil, test.want...)
			wantError(t, s.Check(t.Context()), true, nil, test.want...)
		}))
	}
}

func TestSecretsStayOutOfErrorsAndLogs(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "fb", "right"))
	cfg := configFor(c)
	cfg.SASL = kafka.SASL{Mechanism: kafka.Plain, Username: "fb", Password: "hunter2"}
	var out logbuffer.Buffer // the client logs in the background, also after Close
	conn, err := kafka.Connect(t.Context(), cfg, slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	must.Succeed(t, err)
	err = conn.Check(t.Context())
	conn.Close()
	if strings.Contains(out.String(), "hunter2") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the password shows: %v\n%s", err, out.String())
	}
}

func TestConnectIsCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := kafka.Connect(ctx, configFor(startCluster(t)), silent); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// The address belongs to another kind of server.
func TestServerIsNoBroker(t *testing.T) {
	t.Parallel()
	const want = "is not a Kafka broker, or expects TLS on this port"
	for _, greeting := range []string{"INFO {\"server_id\":\"NX\"}\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "\x15\x03\x01\x00\x02\x02\x16"} {
		t.Run(fmt.Sprintf("%.4q", greeting), func(t *testing.T) {
			t.Parallel()
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			must.Succeed(t, err)
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					t.Cleanup(func() { c.Close() })
					if _, err := c.Write([]byte(greeting)); err != nil {
						return
					}
				}
			}()
			conn := connect(t, kafka.Config{Brokers: []string{l.Addr().String()}, Timeout: time.Minute, TransactionTimeout: 3 * time.Minute})
			wantError(t, conn.Check(t.Context()), true, nil, want)
			_, err = conn.Sink(orders()).Resume(t.Context())
			wantError(t, err, true, nil, want)
		})
	}
}

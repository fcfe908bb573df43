package nats_test

import (
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// serverErrors are the errors that nats-server reports to a client, and one of a proxy.
var serverErrors = []string{
	"Account Authentication Expired", "Authentication Timeout", "Authorization Violation", "Connection throttling is active. Please try again later.",
	"Failed Account Registration", "Invalid Publish Subject", "Invalid Subject", "Maximum Payload Violation",
	`Permissions Violation for Publish to "shop.parcels"`, "Secure Connection - TLS Required", "Stale Connection", "Unknown Protocol Operation",
	"User Authentication Expired", "User Authentication Revoked", "attempted to connect to gateway port", "attempted to connect to leaf node port",
	"attempted to connect to route port", "bad message header detected", "invalid client protocol", "maximum account active connections exceeded",
	"maximum connections exceeded", "maximum control line exceeded", "maximum subscriptions exceeded", "message headers not supported",
	"no responders requires headers support", "the tenant has used its quota",
}

func TestAConnectionContinuesAfterAnyErrorOfTheServer(t *testing.T) {
	t.Parallel()
	for _, text := range serverErrors {
		parallel.Run(t, text, func(t *testing.T) {
			server := startServer(t, t.TempDir(), "127.0.0.1:0")
			p := runProxy(t, strings.TrimPrefix(server.URL(), "nats://"))
			log := &logbuffer.Buffer{}
			conn := connectLogging(t, nats.Config{URL: p.url()}, log)
			seen := watchCheckpoints(t, conn)
			s := conn.Sink(orders())
			resumeAndCommit(t, s, 0, 3)
			commit(t, s, 3, 6) // by fast ingest, whose answers have a subscription
			reconnected := conn.Reconnected()
			p.say("-ERR '" + text + "'\r\n")
			_, reason, isUser := strings.Cut(strings.ToLower(text), "user ")
			if !isUser {
				reason = strings.ToLower(text)
			}
			eventually(t, "the reason is logged", func() bool {
				return strings.Contains(strings.ToLower(log.String()), strings.ReplaceAll(reason, `"`, `\"`))
			})
			if strings.Contains(log.String(), "closed by the server") {
				t.Errorf("the loss is also logged without its reason:\n%s", log)
			}
			p.cut() // as the server does
			<-reconnected.Done()
			eventually(t, "the sink commits", func() bool {
				cp, err := s.Resume(t.Context())
				return err == nil && s.Commit(t.Context(), sinktest.Entities(int(cp.Count), 3), sinktest.At(int(cp.Count)+3)) == nil
			})
			wantFeed(t, s, 9)
			commitAs(t, connect(t, nats.Config{URL: server.URL()}), "parcels", "another copy")
			for got := range seen {
				if got == [2]string{"parcels", "another copy"} {
					break
				}
			}
		})
	}
}

// While the connection is made again, a feed shows why.
func TestTheReasonOfAServerThatEndsTheConnectionIsShown(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	p := runProxy(t, strings.TrimPrefix(server.URL(), "nats://"))
	conn := connect(t, nats.Config{URL: p.url()})
	s := conn.Sink(orders())
	resume(t, s)
	eventually(t, "the reason is shown", func() bool {
		_, err := s.Resume(t.Context())
		if err == nil { // also again, if there was a new connection before Resume
			p.say("-ERR 'the tenant has used its quota'\r\n")
			return false
		}
		return strings.Contains(err.Error(), "NATS at "+p.url()+" has ended the connection: nats: the tenant has used its quota")
	})
}

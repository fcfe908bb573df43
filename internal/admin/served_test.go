package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
)

func addServed(s *admin.Server, name string, topic admin.ServedTopic, err error) *admin.Served {
	return s.AddServed(admin.ServedOptions{
		Name: name, URL: "/feeds/" + name + "/latest", Format: "datareplication", Bus: "main", Topic: name + ".v1", Snapshots: true,
		Look: func(context.Context) (admin.ServedTopic, error) { return topic, err },
	})
}

// served returns what /status and /metrics say of one topic that is served.
func served(t *testing.T, s *admin.Server) (explanation, lastError string, up bool) {
	t.Helper()
	_, body := get(t, s, "/status")
	var answer struct {
		Served []struct {
			OK          bool
			Explanation string
			Last_error  struct{ Text string } //nolint:revive // as in JSON
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Served) != 1 {
		t.Fatal(err, body)
	}
	row := answer.Served[0]
	_, metrics := get(t, s, "/metrics")
	up = strings.Contains(metrics, "\nfeedbridge_served_up{feed=\"orders\"} 1\n")
	if down := strings.Contains(metrics, "\nfeedbridge_served_up{feed=\"orders\"} 0\n"); up == down || up != row.OK {
		t.Errorf("up is %t, down %t, ok %t", up, down, row.OK)
	}
	return row.Explanation, row.Last_error.Text, up
}

func TestServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			situation string
			topic     admin.ServedTopic
			err       error
			want      string
			up        bool
		}{
			{"all is well", admin.ServedTopic{Newest: time.Now().Add(-3 * time.Second), Snapshot: "x"}, nil, "served: the newest message is 3s old", true},
			{"the bus has a clock that is ahead", admin.ServedTopic{Newest: time.Now().Add(time.Second), Snapshot: "x"}, nil, "served: the newest message is 0s old", true},
			{"no messages", admin.ServedTopic{}, nil, "served: the topic has no messages, and readers get 204; there is no snapshot yet", true},
			{"a snapshot is built", admin.ServedTopic{Newest: time.Now(), Snapshot: "x", BuildBegan: time.Now().Add(-time.Minute), Read: 60_000, ToRead: 240_000}, nil, "served: the newest message is 0s old; a snapshot is being built: 25%, 1000/s, 3m left", true},
			{"one begins", admin.ServedTopic{Newest: time.Now(), Snapshot: "x", BuildBegan: time.Now(), ToRead: 240_000}, nil, "served: the newest message is 0s old; a snapshot is being built: 0%", true},
			{"no topic", admin.ServedTopic{}, fmt.Errorf("topic %q: %w: no stream has its subject", "orders", feed.ErrNoTopic), `readers get 404: topic "orders": the topic does not exist: no stream has its subject; it is served as soon as the topic exists`, false},
			{"no bus", admin.ServedTopic{}, errDown, "readers get 503, and are served again when the bus answers: " + errDown.Error(), false},
			{"a compacted topic", admin.ServedTopic{}, feed.Permanent(errors.New("the topic is compacted")), "readers get 500 until this is fixed: the topic is compacted", false},
			{"no credentials", admin.ServedTopic{}, admin.CredentialsError{Err: errors.New("open /run/secrets/token: no such file or directory")}, "readers get 503 until this is fixed: open /run/secrets/token: no such file or directory", false},
		} {
			s := newServer()
			addServed(s, "orders", c.topic, c.err)
			got, last, up := served(t, s)
			if got != c.want || up != c.up || (last == "") != (c.err == nil) {
				t.Errorf("%s: got %q, %q, %t", c.situation, got, last, up)
			}
		}
	})
}

// The last error stays, and a look that takes too long is one.
func TestServedLastError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, hangs := newServer(), true
		s.AddServed(admin.ServedOptions{Name: "orders", Look: func(ctx context.Context) (admin.ServedTopic, error) {
			if hangs {
				<-ctx.Done()
			}
			return admin.ServedTopic{}, ctx.Err()
		}})
		begun := time.Now()
		if got, _, _ := served(t, s); got != "readers get 503, and are served again when the bus answers: no answer within 2s" {
			t.Errorf("got %q", got)
		}
		if took := time.Since(begun); took != 4*time.Second { // for both
			t.Errorf("they took %v", took)
		}
		hangs = false
		if _, last, up := served(t, s); last != "no answer within 2s" || !up {
			t.Errorf("got %q, %t", last, up)
		}
	})
}

// A bus that topics are only served from has to answer once. After that the server itself
// reports the outage to clients.
func TestReadinessOfAServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		err := errDown
		check := func(context.Context) error { return err }
		s := newServer(admin.Bus{Name: "main", Kind: "nats", ServedOnly: true, Check: check})
		addServed(s, "orders", admin.ServedTopic{}, errDown)
		wantReasons(t, s, "bus main: "+errDown.Error())
		time.Sleep(time.Minute)
		wantReasons(t, s, "bus main: "+errDown.Error())
		err = nil
		time.Sleep(time.Minute)
		wantReasons(t, s)
		err = errDown
		time.Sleep(time.Minute)
		wantReasons(t, s)
		if _, body := get(t, s, "/readyz"); !strings.Contains(body, errDown.Error()) {
			t.Errorf("nothing is said of the bus: %s", body)
		}
	})
}

//go:build !noembedded

package embedded

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// testDisk is a disk whose free space a test sets.
type testDisk struct {
	mu  sync.Mutex
	now space
	err error
}

func (d *testDisk) measure(string) (space, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now, d.err
}

func (d *testDisk) set(free int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now.free, d.err = free, err
}

func TestLimitFollowsTheDisk(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	disk := &testDisk{now: space{free: 3 * mib, size: 20 * mib}} // the reserve is 1 MiB
	// The server logs in the background.
	var log logbuffer.Buffer
	s, err := startServer(Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(&log, nil))}, disk.measure)
	must.Succeed(t, err)
	t.Cleanup(s.Close)
	s.disk.close() // the test updates the limit itself
	nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute))
	must.Succeed(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	must.Succeed(t, err)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	published := 0
	publish := func(n int) error {
		for range n {
			if _, err := js.Publish(t.Context(), "s", make([]byte, mib/2)); err != nil {
				return err
			}
			published++
		}
		return nil
	}
	update := func(free int64) {
		t.Helper()
		disk.set(free, nil)
		must.Succeed(t, s.disk.update())
	}
	wantFull := func() {
		t.Helper()
		var api *jetstream.APIError
		if err := publish(10); !errors.As(err, &api) || api.ErrorCode != 10002 {
			t.Fatalf("after %d messages: %v", published, err)
		}
	}

	// 2 MiB are free without the reserve.
	wantFull()
	if published > 4 {
		t.Errorf("%d messages of half a MiB were stored in 2 MiB", published)
	}
	// Somebody has freed 5 MiB.
	update(6 * mib)
	before := published
	wantFull()
	if n := published - before; n < 8 || n > 10 {
		t.Errorf("%d messages of half a MiB were stored in 5 MiB", n)
	}
	// Others have taken all.
	update(0)
	wantFull()
	if n := strings.Count(log.String(), "the disk of the embedded server is full"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
	update(0)
	update(19 * mib)
	if err := publish(10); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	if n := strings.Count(log.String(), "the disk of the embedded server has room again"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
	// An error leaves the limit as it is.
	disk.set(0, errors.New("no such disk"))
	if err := s.disk.update(); err == nil || !strings.Contains(err.Error(), "no such disk") {
		t.Errorf("got %v", err)
	}
	if err := publish(1); err != nil {
		t.Errorf("after an error: %v", err)
	}
}

func TestLimitIsUpdatedEveryFiveSeconds(t *testing.T) {
	t.Parallel()
	disk := &testDisk{now: space{free: 1 << 30, size: 1 << 30}}
	s, err := Start(Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	t.Cleanup(s.Close)
	s.disk.close()
	synctest.Test(t, func(t *testing.T) {
		measured := 0
		d := &diskLimit{account: s.server.GlobalAccount(), log: slog.New(slog.DiscardHandler), measure: func(string) (space, error) {
			measured++
			return disk.measure("")
		}}
		ctx, cancel := context.WithCancel(t.Context())
		d.stopped.Go(func() { d.follow(ctx) })
		time.Sleep(time.Minute + time.Second)
		cancel()
		d.stopped.Wait()
		if measured != 12 {
			t.Errorf("%d times in a minute", measured)
		}
	})
}

func TestDiskIsMeasured(t *testing.T) {
	t.Parallel()
	now, err := measureDisk(t.TempDir())
	if err != nil || now.free <= 0 || now.size < now.free {
		t.Errorf("got %+v, %v", now, err)
	}
}

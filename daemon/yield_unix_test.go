//go:build unix

package daemon_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/internal/admin/status"
)

// busyToken makes a file for a token whose reading does not end, as on a file system that does not answer:
// a feed that needs it does not yield. wait returns when that is so, and release ends it.
func busyToken(t *testing.T) (path string, wait, release func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "token")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	var readers []*os.File
	wait = func() {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			// A pipe can be opened like this if it is being read. It stays open, so that the reading goes on.
			f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			if err == nil {
				readers = append(readers, f)
				return
			}
			if time.Now().After(end) {
				t.Fatal("the token is not read: ", err)
			}
		}
	}
	return path, wait, func() {
		for _, f := range readers {
			_, _ = f.WriteString("secret\n")
			_ = f.Close()
		}
		readers = nil
	}
}

func TestControlsAnswerWhileAFeedDoesNotYield(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, url := newUpstream(t, 12)
	token, wait, release := busyToken(t)
	t.Cleanup(release)
	busy := []string{url, "AUTH_BEARER=file:" + token, "EVERY=1h"}
	r := startReloadable(t, reloadableEnviron(dir, map[string][]string{"busy": busy, "kept": {url}}))
	wait()
	r.awaitFeed(t, "kept", entities(12))

	for _, action := range []string{"pause", "resume"} {
		var answer daemon.Pause
		code, body := r.post(t, "/feeds/busy/"+action)
		if err := json.Unmarshal([]byte(body), &answer); code != http.StatusOK || err != nil || !answer.Changed || (answer.Paused != nil) != (action == "pause") || !strings.HasPrefix(answer.Work, "reading the feed for ") {
			t.Errorf("%s: %d %s", action, code, body)
		}
	}
	var polled daemon.Poll
	code, body := r.post(t, "/feeds/busy/poll")
	if err := json.Unmarshal([]byte(body), &polled); code != http.StatusOK || err != nil || polled.State != bridge.Reading || !strings.HasPrefix(polled.Work, "reading the feed for ") {
		t.Errorf("poll: %d %s", code, body)
	}

	changed, errs := r.reload(t, reloadableEnviron(dir, map[string][]string{"kept": {url}}))
	if wantChanged(t, "feeds", changed.Feeds, "", "", "busy"); len(errs) > 0 || len(changed.LeftBehind) != 1 || changed.LeftBehind[0].Feed != "busy" {
		t.Errorf("reload: %+v %v", changed, errs)
	}
	leftBehind := func() int {
		t.Helper()
		var s status.Process
		if _, body := r.read(t, "/status"); json.Unmarshal([]byte(body), &s) != nil {
			t.Fatal(body)
		}
		return len(s.LeftBehind)
	}
	if n := leftBehind(); n != 1 {
		t.Errorf("the status shows %d feeds that were left behind", n)
	}
	// The name can be used again, and the feed that was left behind commits nothing when it goes on.
	if changed, errs = r.reload(t, reloadableEnviron(dir, map[string][]string{"kept": {url}, "busy": {url}})); len(errs) > 0 || len(changed.LeftBehind) > 0 {
		t.Errorf("the next reload: %+v %v", changed, errs)
	}
	r.awaitFeed(t, "busy", entities(12))
	release()
	for end := time.Now().Add(patience); leftBehind() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the feed does not end")
		}
	}
	if row := r.awaitFeed(t, "busy", entities(12)); row.Published != 12 {
		t.Errorf("%+v", row)
	}

	// A stop does not wait for it, and does not report a commit.
	if _, errs := r.reload(t, reloadableEnviron(dir, map[string][]string{"kept": {url}, "busy": busy})); len(errs) > 0 {
		t.Fatal(errs)
	}
	wait()
	r.stop()
	if r.log.count("are left behind; nothing of them was being stored") != 1 {
		t.Error("the log does not name the feed that was left behind by the stop")
	}
}

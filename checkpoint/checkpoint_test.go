package checkpoint

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

var update = flag.Bool("update", false, "write the golden file of the current version")

// golden is the checkpoint that the files of testdata hold, as each version
// wrote it. A file is never changed once a release has written such bytes.
var golden = Checkpoint{
	Feed:   "orders",
	Source: "datareplication",
	Cursor: feed.Cursor(`{"v":1,"page":"https://shop.example.com/feed/7","index":3,"last":"<42@shop.example.com>"}`),
	Count:  20_003,
	At:     time.Date(2026, 11, 21, 9, 30, 15, 123_000_000, time.UTC),
	Writer: "host-7-a1b2c3",
}

// goldenPaused is the checkpoint in testdata/paused/v1.json.
func goldenPaused() Checkpoint {
	cp := golden
	cp.Paused = time.Date(2026, 11, 22, 17, 40, 1, 5_000_000, time.UTC)
	return cp
}

func TestEncodeWritesTheGoldenBytes(t *testing.T) {
	for file, cp := range map[string]Checkpoint{
		filepath.Join("testdata", "v1.json"):           golden,
		filepath.Join("testdata", "paused", "v1.json"): goldenPaused(),
	} {
		got := append(Encode(cp), '\n')
		if *update {
			must.Succeed(t, os.WriteFile(file, got, 0o644))
		}
		want, err := os.ReadFile(file)
		must.Succeed(t, err)
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("the stored form of %s has changed (-golden +now):\n%s", file, diff)
		}
	}
}

func TestWhatEveryVersionWroteIsRead(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		must.Succeed(t, err)
		got, err := Decode(data)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		must.Match(t, file, golden, got)
	}
}

func TestPauseIsRead(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "paused", "v1.json"))
	must.Succeed(t, err)
	got, err := Decode(data)
	must.Succeed(t, err)
	if diff := cmp.Diff(goldenPaused(), got); diff != "" || !got.IsPaused() || golden.IsPaused() {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeRefusesWhatItCannotBeSureOf(t *testing.T) {
	for name, data := range map[string]string{
		"nothing":             ``,
		"not JSON":            `checkpoint`,
		"another JSON":        `[1]`,
		"no version":          `{"feed":"orders","source":"datareplication"}`,
		"a later version":     `{"version":2,"feed":"orders","source":"datareplication"}`,
		"no feed":             `{"version":1,"source":"datareplication"}`,
		"no source":           `{"version":1,"feed":"orders"}`,
		"cursor not base64":   `{"version":1,"feed":"orders","source":"datareplication","cursor":"%"}`,
		"negative count":      `{"version":1,"feed":"orders","source":"datareplication","count":-1}`,
		"something behind it": `{"version":1,"feed":"orders","source":"datareplication"} {}`,
	} {
		t.Run(name, func(t *testing.T) {
			cp, err := Decode([]byte(data))
			if !errors.Is(err, ErrUnreadable) || !errors.Is(err, feed.ErrPermanent) {
				t.Errorf("got %+v, %v", cp, err)
			}
		})
	}
}

func TestDecodeIgnoresKeysOfLaterReleases(t *testing.T) {
	cp, err := Decode([]byte(`{"version":1,"feed":"orders","source":"datareplication","mood":"fine"}`))
	if err != nil || cp.Feed != "orders" {
		t.Errorf("got %+v, %v", cp, err)
	}
}

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		cp      Checkpoint
		foreign bool
	}{
		"an empty topic":                 {Checkpoint{}, false},
		"ours":                           {golden, false},
		"another feed":                   {Checkpoint{Feed: "letters", Source: "datareplication"}, true},
		"another kind":                   {Checkpoint{Feed: "orders", Source: "atom", Cursor: feed.Cursor("7")}, true},
		"paused before the first entity": {Checkpoint{Feed: "orders", Source: UnknownSource, Paused: golden.At}, false},
		"paused, another feed":           {Checkpoint{Feed: "letters", Source: UnknownSource, Paused: golden.At}, true},
		"a reset":                        {Checkpoint{Feed: "orders", Source: "atom", Count: 7}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.cp.Check("orders", "datareplication")
			if got := errors.Is(err, ErrForeign); got != test.foreign {
				t.Errorf("Check: %v", err)
			}
			if test.foreign && (!errors.Is(err, feed.ErrPermanent) || !strings.Contains(err.Error(), "checkpoint reset orders")) {
				t.Errorf("the error does not say what to do: %v", err)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(golden))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"feed":"a","source":"b","at":"9999-12-31T23:59:59-01:00"}`))
	f.Add([]byte(`{"version":1,"feed":"a","source":"b","moved":"0000-01-01T00:00:00+01:00"}`))
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, data []byte) {
		cputime.CheckRepeated(t, string(data), func(text string) { _, _ = Decode([]byte(text)) })
		cp, err := Decode(data)
		if err != nil {
			if !errors.Is(err, ErrUnreadable) {
				t.Errorf("Decode: %v", err)
			}
			return
		}
		// Encode keeps milliseconds.
		cp.At, cp.Moved, cp.Paused = storedTime(cp.At), storedTime(cp.Moved), storedTime(cp.Paused)
		again, err := Decode(Encode(cp))
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded and decoded: %v", err)
		}
		if diff := cmp.Diff(cp, again); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
	}))
}

//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// The NATS server of a run is this binary.
func TestMain(m *testing.M) {
	if dir := os.Getenv(busVariable); dir != "" {
		exit(serveBus(dir))
	}
	os.Exit(m.Run())
}

func TestJudge(t *testing.T) {
	t.Parallel()
	f := newFeed(10)
	f.grow(64) // position 63 is the second version of the entry at 2
	message := func(position int) []byte {
		v := f.history[position]
		return fmt.Appendf(nil, `{"title":"Order %d version %d position %d"}`, v.entry, v.number, position)
	}
	for _, test := range []struct {
		name string
		edit func([][]byte) [][]byte
		want Counts
	}{
		{"equal", func(m [][]byte) [][]byte { return m }, Counts{Messages: 64}},
		{"without the older version", func(m [][]byte) [][]byte { return append(m[:2:2], m[3:]...) }, Counts{Messages: 63}},
		{"lost", func(m [][]byte) [][]byte { return append(m[:20:20], m[21:]...) }, Counts{Messages: 63, Lost: 1}},
		{"edit lost", func(m [][]byte) [][]byte { return m[:63] }, Counts{Messages: 63, EditsLost: 1}},
		{"twice", func(m [][]byte) [][]byte { return append(m, m[20]) }, Counts{Messages: 65, Twice: 1}},
		{"the older version last", func(m [][]byte) [][]byte { return append(m, m[2]) }, Counts{Messages: 65, Twice: 1, EditsLost: 1}},
		{"out of order", func(m [][]byte) [][]byte { m[8], m[9] = m[9], m[8]; return m }, Counts{Messages: 64, OutOfOrder: 1}},
		{"of another program", func(m [][]byte) [][]byte { return append(m, []byte("hello")) }, Counts{Messages: 65}},
	} {
		var messages [][]byte
		for position := range f.history {
			messages = append(messages, message(position))
		}
		if got := judge(f.history, test.edit(messages)); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

// A short run of two rows of the table: the configurations work, and feedbridge keeps its promise.
// What the script repeats depends on the moments of the kills.
func TestShortRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and runs programs for half a minute")
	}
	t.Chdir("../..") // as examples/comparison/run
	for _, p := range peers[:2] {
		dir := t.TempDir()
		command, _, err := p.build(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		r := run{
			// The window has everything, so that a slow machine makes the script lose nothing.
			scenario: scenario{initial: 400, rate: 100, duration: 8 * time.Second, window: 3000, every: 200 * time.Millisecond, kills: true, settled: 5 * time.Second},
			peer:     p, command: command, dir: dir, random: rand.New(rand.NewPCG(1, 1)),
		}
		result, err := r.do(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		t.Logf("%s: %+v", p.name, result)
		if result.Kills == 0 || result.CPU == 0 {
			t.Errorf("%s was not killed, or its processor time is missing: %+v", p.name, result)
		}
		if want := (Counts{Messages: result.Messages}); p.name == "feedbridge" && result.Counts != want || result.Lost > 0 {
			t.Errorf("%s: %+v, want %+v", p.name, result.Counts, want)
		}
	}
}

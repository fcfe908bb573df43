//go:build chaos && linux

package chaos

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestCrashMatrix injects faults into feedbridge and its buses, and compares the
// topics with the feeds. It prints the table of docs/crash-matrix.md.
func TestCrashMatrix(t *testing.T) {
	if !slices.Contains([]string{"", "nats", "kafka"}, flags.bus) || !slices.Contains([]int{0, 1, 3}, flags.nodes) {
		t.Fatalf("invalid flags -bus %q -nodes %d: want nats or kafka, and 1 or 3", flags.bus, flags.nodes)
	}
	if !slices.Contains([]string{"", "yes", "no"}, flags.fleet) {
		t.Fatalf("invalid flag -fleet %q: want yes or no", flags.fleet)
	}
	fmt.Printf("seed %d\n", flags.seed)
	for _, kind := range []string{"nats", "kafka"} {
		if flags.bus != "" && flags.bus != kind {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			if missing := os.Getenv(noKafkaVariable); kind == "kafka" && missing != "" {
				t.Skip(missing)
			}
			t.Parallel()
			tab := newTable()
			runScenarios(t, kind, tab)
			printMutex.Lock()
			defer printMutex.Unlock()
			fmt.Printf("\n%s, seed %d\n\n", kind, flags.seed)
			tab.print(os.Stdout, faultNames())
			some, many := tab.withoutEffect(faultNames())
			if len(some) > 0 {
				fmt.Printf("\nWithout effect: %s.\n", strings.Join(some, ", "))
			}
			for _, name := range many {
				t.Errorf("%q was tried %d times or more and had no effect", name, enoughTries)
			}
		})
	}
}

var printMutex sync.Mutex

// runScenarios runs all scenarios of a bus side by side.
func runScenarios(t *testing.T, kind string, tab *table) {
	var all []*scenario
	for _, nodes := range []int{1, 3} {
		if flags.nodes != 0 && flags.nodes != nodes || len(applicable(kind, nodes, tab)) == 0 {
			continue
		}
		for number := range flags.side {
			s, err := newScenario(t, kind, nodes, number+1, tab)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		t.Fatalf("no fault whose name contains %q can be injected", flags.only)
	}
	sideBySide := func(do func(*scenario) error) {
		var running sync.WaitGroup
		for _, s := range all {
			running.Go(func() {
				if err := do(s); err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
			})
		}
		running.Wait()
	}
	sideBySide((*scenario).begin)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if flags.rounds == 0 {
		defer time.AfterFunc(flags.duration, cancel).Stop()
	}
	tab.limit(flags.faults, cancel)
	sideBySide(func(s *scenario) error { return s.run(ctx) })
}

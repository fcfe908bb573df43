//go:build unix

// Command comparison copies the same feed by several programs, kills them and the bus, and counts
// what their topics have lost or repeated. docs/comparison.md has its results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// busVariable makes this program a NATS server that stores in the directory of its value.
const busVariable = "COMPARISON_BUS"

func main() {
	if dir := os.Getenv(busVariable); dir != "" {
		exit(serveBus(dir))
	}
	only := flag.String("peers", "", "names of peers, separated by commas (default all)")
	onlyScenarios := flag.String("scenarios", "", "names of scenarios, separated by commas (default all)")
	keep := flag.Bool("keep", false, "keep the directory with the logs")
	seed := flag.Uint64("seed", 1, "of the moments of the kills")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	exit(compare(ctx, selected(*only), selected(*onlyScenarios), *keep, *seed))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func selected(names string) func(string) bool {
	return func(name string) bool {
		return names == "" || slices.Contains(strings.Split(names, ","), name)
	}
}

// compare runs the peers by turns, and prints a table for each scenario.
func compare(ctx context.Context, wanted, wantedScenario func(string) bool, keep bool, seed uint64) error {
	dir, err := os.MkdirTemp("", "comparison-*")
	if err != nil {
		return err
	}
	if keep {
		fmt.Fprintln(os.Stderr, "logs are in", dir)
	} else {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	var built []run
	versions := map[string]string{}
	for _, peer := range peers {
		if !wanted(peer.name) {
			continue
		}
		command, version, err := peer.build(ctx, dir)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s is left out: %v\n", peer.name, err)
			continue
		}
		versions[peer.name] = version
		built = append(built, run{peer: peer, command: command})
	}
	var failed error
	for _, s := range scenarios {
		if !wantedScenario(s.name) {
			continue
		}
		results := map[string][]Result{}
		for n := range s.runs {
			for _, r := range built {
				r.scenario, r.random = s, rand.New(rand.NewPCG(seed, uint64(n)))
				r.dir = filepath.Join(dir, fmt.Sprintf("%s-%s-%d", s.name, r.peer.name, n))
				if err := os.Mkdir(r.dir, 0o700); err != nil {
					return err
				}
				result, err := r.do(ctx)
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("%s of %s, which has no row: %w", s.name, r.peer.name, err))
					continue
				}
				fmt.Fprintf(os.Stderr, "%s %s: %+v\n", s.name, r.peer.name, result)
				results[r.peer.name] = append(results[r.peer.name], result)
			}
		}
		fmt.Printf("\n%s: %s\n\n%s", s.name, s.what, table(s, built, versions, results))
	}
	return failed
}

func table(s scenario, built []run, versions map[string]string, results map[string][]Result) string {
	var b strings.Builder
	if s.rate == 0 {
		b.WriteString("| Copier | Version | Entities a second | CPU, s |\n|---|---|---|---|\n")
	} else {
		b.WriteString("| Copier | Version | Kills (of the bus) | Lost | Edits lost | Twice | Out of order | CPU, s |\n")
		b.WriteString("|---|---|---|---|---|---|---|---|\n")
	}
	for _, r := range built {
		if len(results[r.peer.name]) == 0 {
			continue
		}
		var sum Result
		var rates, cpus []float64
		for _, result := range results[r.peer.name] {
			sum.add(result.Counts)
			sum.Kills += result.Kills
			sum.BusKills += result.BusKills
			rates, cpus = append(rates, result.Rate), append(cpus, result.CPU.Seconds())
		}
		if s.rate == 0 {
			fmt.Fprintf(&b, "| %s | %s | %.0f | %.2f |\n", r.peer.name, versions[r.peer.name], median(rates), median(cpus))
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %d (%d) | %d | %d | %d | %d | %.2f |\n", r.peer.name, versions[r.peer.name],
			sum.Kills+sum.BusKills, sum.BusKills, sum.Lost, sum.EditsLost, sum.Twice, sum.OutOfOrder, median(cpus))
	}
	return b.String()
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// serveBus runs a NATS server with file storage until it is killed.
func serveBus(dir string) error {
	port, err := strconv.Atoi(os.Getenv("PORT"))
	if err != nil {
		return fmt.Errorf("variable PORT: %w", err)
	}
	bus, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir})
	if err != nil {
		return err
	}
	bus.ConfigureLogger()
	bus.Start()
	if !bus.ReadyForConnections(30 * time.Second) {
		return errors.New("the NATS server is not ready after 30 s")
	}
	bus.WaitForShutdown()
	return nil
}

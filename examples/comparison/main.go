//go:build unix

// Command comparison copies the same feed by several programs, kills them and the bus, and counts
// what their topics have lost or repeated. docs/comparison.md has its results.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
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
	rounds := flag.Int("rounds", 3, "runs of each peer in each scenario")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	exit(compare(ctx, selected(*only), selected(*onlyScenarios), *keep, *seed, max(*rounds, 1)))
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

// compare runs each scenario in rounds, in which the peers take turns, and prints its table.
func compare(ctx context.Context, wanted, wantedScenario func(string) bool, keep bool, seed uint64, rounds int) error {
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
	var versions []string
	for _, peer := range peers {
		if !wanted(peer.name) {
			continue
		}
		command, version, err := peer.build(ctx, dir)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s is left out: %v\n", peer.name, err)
			continue
		}
		versions = append(versions, peer.name+" "+version)
		built = append(built, run{peer: peer, command: command})
	}
	fmt.Printf("%s, %d processors; %s\n", runtime.Version(), runtime.NumCPU(), strings.Join(versions, ", "))
	var failed error
	for _, s := range scenarios {
		if !wantedScenario(s.name) {
			continue
		}
		results := make([][]Result, len(built))
		for round := range rounds {
			for i, r := range built {
				r.scenario, r.random = s, rand.New(rand.NewPCG(seed, uint64(round)))
				r.dir = filepath.Join(dir, fmt.Sprintf("%s-%s-%d", s.name, r.peer.name, round+1))
				if err := os.Mkdir(r.dir, 0o700); err != nil {
					return err
				}
				result, err := r.do(ctx)
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("%s of %s, round %d, is not in the table: %w", s.name, r.peer.name, round+1, err))
					continue
				}
				results[i] = append(results[i], result)
			}
		}
		printTable(s, built, results)
	}
	return failed
}

// printTable prints the sums of the counts, and the medians of rates and CPU time with their ratio to the first peer.
func printTable(s scenario, built []run, results [][]Result) {
	fmt.Printf("\n%s: %s\n\n| Copier | Runs | Lost | Edits lost | Twice | Out of order | Kills (of the bus) | Entities/s | CPU, s |\n|---|---|---|---|---|---|---|---|---|\n", s.name, s.what)
	var firstRate, firstCPU float64
	for i, r := range built {
		if len(results[i]) == 0 {
			continue
		}
		var sum Result
		var rates, cpus []float64
		for _, result := range results[i] {
			sum.add(result)
			rates = append(rates, float64(result.Messages)/result.Took.Seconds())
			cpus = append(cpus, result.CPU.Seconds())
		}
		rate, cpu := median(rates), median(cpus)
		firstRate, firstCPU = cmp.Or(firstRate, rate), cmp.Or(firstCPU, cpu)
		perSecond := "that of the feed"
		if s.duration == 0 {
			perSecond = fmt.Sprintf("%.0f (%.2f)", rate, rate/firstRate)
		}
		fmt.Printf("| %s | %d | %d | %d | %d | %d | %d (%d) | %s | %.2f (%.1f) |\n", r.peer.name, len(results[i]), sum.Lost, sum.EditsLost, sum.Twice, sum.OutOfOrder,
			sum.Kills+sum.BusKills, sum.BusKills, perSecond, cpu, cpu/firstCPU)
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
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

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

// compare runs the peers one after the other, and prints a table for each scenario.
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
		fmt.Printf("\n%s: %s\n\n| Copier | Lost | Edits lost | Twice | Out of order | Kills (of the bus) | CPU, s | Version |\n|---|---|---|---|---|---|---|---|\n", s.name, s.what)
		for _, r := range built {
			r.scenario, r.random = s, rand.New(rand.NewPCG(seed, 0))
			r.dir = filepath.Join(dir, s.name+"-"+r.peer.name)
			if err := os.Mkdir(r.dir, 0o700); err != nil {
				return err
			}
			result, err := r.do(ctx)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s of %s, which has no row: %w", s.name, r.peer.name, err))
				continue
			}
			fmt.Printf("| %s | %d | %d | %d | %d | %d (%d) | %.2f | %s |\n", r.peer.name, result.Lost, result.EditsLost, result.Twice, result.OutOfOrder,
				result.Kills+result.BusKills, result.BusKills, result.CPU.Seconds(), versions[r.peer.name])
		}
	}
	return failed
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

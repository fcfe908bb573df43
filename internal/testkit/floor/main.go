// Command floor does only what a copy of a datareplication feed must do: it finds the first page by
// the links of the pages from the newest on, requests the pages, splits them into entities, and
// publishes these with a checkpoint for each commit. It reads ahead, makes its commits as large as
// feedbridge makes them, and uses the same client libraries. It trusts its upstream: it splits a
// page by the Content-Length of its parts, looks for no duplicates, checks nothing, and retries
// nothing. So its rate and processor time bound what feedbridge can reach. The benchmarks CopyToNATS
// and CopyToKafka of cmd/feedbridge run it.
//
//	floor nats URL FEED TOPIC
//	floor kafka BROKER FEED TOPIC
//
// When it has copied the feed, it prints the peak of its resident memory in KiB, and ends.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// timeout limits each request to a bus.
const timeout = time.Minute

// pagesAhead is the number of pages that are read before they are used.
const pagesAhead = 8

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 4 {
		return errors.New("usage: floor nats|kafka BUS FEED TOPIC")
	}
	copyFeed := copyToNATS
	if args[0] == "kafka" {
		copyFeed = copyToKafka
	}
	if err := copyFeed(args[1], args[2], args[3]); err != nil {
		return err
	}
	peak, err := peakMemory()
	fmt.Println(peak)
	return err
}

// peakMemory returns the peak of the resident memory, in KiB. The peak that the parent gets from
// wait counts its own memory, too, before it has executed this program. It is 0 where there is no
// /proc.
func peakMemory() (string, error) {
	data, err := os.ReadFile("/proc/self/status")
	if errors.Is(err, os.ErrNotExist) {
		return "0", nil
	}
	_, rest, _ := strings.Cut(string(data), "VmHWM:")
	value, _, _ := strings.Cut(rest, "kB")
	return strings.TrimSpace(value), err
}

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
)

// initCommand returns the command "init", which writes a first configuration.
func initCommand(a *app) *cobra.Command {
	var q initAnswers
	var force bool
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a first configuration, for NATS, Kafka or the built-in bus",
		Long: `Init writes a commented configuration with one bus and one feed. On a terminal it asks
three questions: the kind of the bus, its address, and the URL of the feed, or of a
page that names it. Elsewhere --bus and --feed are needed. FILE is feedbridge.yaml if
it is not given. A file that exists is replaced only with --force.`,
		Example: `  feedbridge init
  feedbridge init --bus nats --url nats://127.0.0.1:4222 --feed https://shop.example.com
  feedbridge init --bus kafka --url kafka-1:9092,kafka-2:9092 --feed feeds.opml /etc/feedbridge/feedbridge.yaml`,
		Args: optionalArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := defaultFile
			if len(args) > 0 {
				name = args[0]
			}
			f := &configFile{name: name, path: name}
			if _, err := os.Lstat(name); err == nil {
				if !force {
					return fmt.Errorf("%s exists, and is unchanged; name another file, or replace it with --force", name)
				}
				if f, err = openConfigFile(name); err != nil {
					return err
				}
			}
			if err := q.complete(cmd, a); err != nil {
				return err
			}
			return writeStarter(cmd, a, f, q)
		},
	}
	cmd.Flags().StringVar(&q.bus, "bus", "", "the `KIND` of the bus: nats, kafka or embedded, a NATS server inside feedbridge")
	cmd.Flags().StringVar(&q.address, "url", "", "the `URL` of NATS, the brokers of Kafka (host:port, with commas between them), or\nthe host:port of the embedded bus; default: the usual port of this machine")
	cmd.Flags().StringVar(&q.feed, "feed", "", "the `URL` of a feed, a page that names one, or a list in OPML, or a file with a list")
	cmd.Flags().BoolVar(&q.all, "all", false, "take all feeds of a page")
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that exists")
	return cmd
}

// initAnswers are what a first configuration needs.
type initAnswers struct {
	bus, address, feed string
	all                bool
}

// complete asks for what no flag has, on a terminal.
func (q *initAnswers) complete(cmd *cobra.Command, a *app) error {
	kinds := slices.Sorted(maps.Keys(config.StarterAddresses))
	in, isFile := a.in.(*os.File)
	mayAsk := isFile && isTerminal(in)
	question := func(flag, text, preset string, value *string) error {
		if *value != "" {
			return nil
		}
		if !mayAsk {
			if *value = preset; preset == "" {
				return &usageError{fmt.Errorf("--%s is missing, and standard input is no terminal to ask", flag)}
			}
			return nil
		}
		if preset != "" {
			text += " [" + preset + "]"
		}
		answer, err := ask(cmd.Context(), a, text+":")
		if *value = answer; answer == "" {
			*value = preset
		}
		if err == nil && *value == "" {
			err = errors.New("the answer is empty")
		}
		return err
	}
	bus := ""
	if mayAsk {
		bus = "embedded"
	}
	if err := question("bus", "Where do messages go: "+strings.Join(kinds, ", "), bus, &q.bus); err != nil {
		return err
	}
	address, ok := config.StarterAddresses[q.bus]
	if !ok {
		return &usageError{fmt.Errorf("there is no bus %q; want one of %s", q.bus, strings.Join(kinds, ", "))}
	}
	what := map[string]string{"nats": "URL of NATS", "kafka": "Brokers of Kafka", "embedded": "Address of the embedded bus"}
	if err := question("url", what[q.bus], address, &q.address); err != nil {
		return err
	}
	return question("feed", "URL of a feed, or of a page that names it", "", &q.feed)
}

// writeStarter writes a first configuration, and prints what to do next.
func writeStarter(cmd *cobra.Command, a *app, f *configFile, q initAnswers) error {
	ad := &addition{app: a, file: f, base: config.Starter(q.bus, q.address), all: q.all}
	err := ad.add(cmd.Context(), q.feed)
	if _, ok := errors.AsType[config.Errors](err); ok { // there is no such file yet
		err = wrongWith(err)
	}
	if err != nil {
		return err
	}
	p := &printer{w: a.out, redact: a.redact}
	program := programName()
	p.printLine("wrote %s\n\nNext:", f.name)
	p.printLine("  %s check --connect -c %s", program, f.name)
	p.printLine("  %s run -c %s", program, f.name)
	p.printLine("  %s add -c %s URL    (also while it runs)", program, f.name)
	return p.err
}

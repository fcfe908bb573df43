package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
)

// initCommand returns the command "init", which writes a first configuration.
func initCommand(a *app) *cobra.Command {
	var bus, address, feed string
	var all bool
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a first configuration, for NATS, Kafka or the built-in bus",
		Long: `Init writes a commented configuration with one bus and one feed. On a terminal it asks
for what no flag has: the kind of the bus, its address, and the URL of the feed, or of a
page that names it. Elsewhere --feed is needed. FILE is feedbridge.yaml if it is not
given. A file that exists is never replaced.`,
		Example: `  feedbridge init
  feedbridge init --bus nats --url nats://127.0.0.1:4222 --feed https://shop.example.com
  feedbridge init --bus kafka --url kafka-1:9092,kafka-2:9092 --feed feeds.opml /etc/feedbridge/feedbridge.yaml`,
		Args: optionalArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := append(args, defaultFile)[0]
			if _, err := os.Lstat(name); err == nil {
				return fmt.Errorf("%s exists, and is unchanged; name another file, or add a feed to it with 'feedbridge add'", name)
			}
			if err := askFor(cmd.Context(), a, &bus, "bus", "Where do messages go: embedded, kafka, nats", "embedded"); err != nil {
				return err
			}
			usual, ok := config.StarterAddresses[bus]
			if !ok {
				return &usageError{fmt.Errorf("there is no bus %q; want one of embedded, kafka, nats", bus)}
			}
			ports := "" // that are in use, such as by the demo
			if bus == "embedded" {
				usual = noteAvailable(cmd.Context(), usual, &ports)
			}
			admin := noteAvailable(cmd.Context(), "127.0.0.1:9321", &ports)
			what := map[string]string{"nats": "URL of NATS", "kafka": "Brokers of Kafka", "embedded": "Address of the embedded bus"}
			err := askFor(cmd.Context(), a, &address, "url", what[bus], usual)
			if err == nil {
				err = askFor(cmd.Context(), a, &feed, "feed", "URL of a feed, or of a page that names it", "")
			}
			if err != nil {
				return err
			}
			ad := &addition{app: a, file: &configFile{name: name, path: name}, base: config.Starter(bus, address, admin), all: all}
			err = ad.add(cmd.Context(), feed)
			if _, ok := errors.AsType[config.Errors](err); ok { // there is no such file yet
				err = wrongWith(err)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "wrote %[2]s\n\nNext:\n  %[1]s check --connect -c %[2]s\n  %[1]s run -c %[2]s\n  %[1]s add -c %[2]s URL    (also while it runs)\n%[3]s", programName(), name, ports)
			return err
		},
	}
	cmd.Flags().StringVar(&bus, "bus", "", "the `KIND` of the bus: nats, kafka or embedded, a NATS server inside feedbridge;\ndefault: embedded")
	cmd.Flags().StringVar(&address, "url", "", "the `URL` of NATS, the brokers of Kafka (host:port, with commas between them), or\nthe host:port of the embedded bus; default: the usual port of this machine")
	cmd.Flags().StringVar(&feed, "feed", "", "the `URL` of a feed, a page that names one, or a list in OPML, or a file with a list")
	cmd.Flags().BoolVar(&all, "all", false, "take all feeds of a page")
	return cmd
}

// noteAvailable is availableAddress, and adds a line to notes about another one.
func noteAvailable(ctx context.Context, addr string, notes *string) string {
	at := availableAddress(ctx, addr)
	if at != addr {
		*notes += fmt.Sprintf("\n%s is in use on this machine, so the file has %s.\n", addr, at)
	}
	return at
}

// askFor asks for the value of a flag that is not set, if there is a terminal. Without an answer it is usual.
func askFor(ctx context.Context, a *app, value *string, flag, question, usual string) error {
	if *value != "" {
		return nil
	}
	if in, ok := a.in.(*os.File); ok && isTerminal(in) {
		if usual != "" {
			question += " [" + usual + "]"
		}
		answer, err := ask(ctx, a, question+":")
		if err != nil {
			return err
		}
		*value = answer
	}
	if *value = cmp.Or(*value, usual); *value == "" {
		return &usageError{fmt.Errorf("--%s is missing", flag)}
	}
	return nil
}

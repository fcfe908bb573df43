package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/asyncapi"
)

// describeCommand returns the command "describe", which prints the contract of topics.
func describeCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := a.configurable(&cobra.Command{
		Use:   "describe [TOPIC]",
		Short: "Print what consumers find in the topics, as AsyncAPI",
		Long: `Describe prints an AsyncAPI 3.1 document about all topics that the configuration
fills, or about one and its dead letters: servers, messages, their headers and
bodies as JSON Schema, and bindings. It needs neither the bus nor the feeds, and
the document has no credentials.`,
		Example: `  feedbridge describe -c feedbridge.yaml > asyncapi.yaml
  feedbridge describe -c feedbridge.yaml orders --json | jq .channels`,
		Args:              optionalArg,
		ValidArgsFunction: completeTopics(a),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := a.loadConfig("", "")
			if err != nil {
				return err
			}
			topics, err := chooseTopics(asyncapi.Topics(cfg), args)
			if err != nil {
				return err
			}
			document := asyncapi.Describe(cfg, topics, programVersion())
			if asJSON {
				return printJSON(a.out, document)
			}
			text, err := yaml.Dump(document, yaml.WithV3Defaults(), yaml.WithIndent(2), yaml.WithLineWidth(-1))
			if err == nil {
				_, err = a.out.Write(text)
			}
			return err
		},
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// chooseTopics returns the topics that the arguments name, with their dead letters; without arguments all.
func chooseTopics(topics []asyncapi.Topic, args []string) ([]asyncapi.Topic, error) {
	if len(topics) == 0 {
		return nil, &usageError{errors.New("the configuration copies no feed to a topic")}
	}
	if len(args) == 0 {
		return topics, nil
	}
	var chosen []asyncapi.Topic
	for _, t := range topics {
		if t.Address == args[0] || t.Of == args[0] {
			chosen = append(chosen, t)
		}
	}
	if len(chosen) == 0 {
		return nil, &usageError{fmt.Errorf("no feed is copied to the topic %q%s", args[0], config.DidYouMean(args[0], addresses(topics)))}
	}
	return chosen, nil
}

// addresses returns the names of topics.
func addresses(topics []asyncapi.Topic) (names []string) {
	for _, t := range topics {
		names = append(names, t.Address)
	}
	return slices.Compact(names) // of several buses
}

// completeTopics completes the name of a topic in a shell.
func completeTopics(a *app) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		cfg, err := a.loadConfig("", "")
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return addresses(asyncapi.Topics(cfg)), cobra.ShellCompDirectiveNoFileComp
	}
}

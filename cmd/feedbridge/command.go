package main

import (
	"strings"
	"sync"

	"github.com/spf13/cobra"
)

// keepCommandOrder makes cobra list commands in the order in which they are added. That is a setting of
// the process, and tests run commands concurrently.
var keepCommandOrder = sync.OnceFunc(func() { cobra.EnableCommandSorting = false })

// newRootCommand returns the program's command with all others below it.
func newRootCommand(a *app) *cobra.Command {
	keepCommandOrder()
	root := commandGroup("feedbridge", "Copy HTTP feeds to message topics, each entity once and in order",
		`feedbridge polls HTTP feeds and publishes each new entity as a message to NATS
JetStream or Kafka. The topic of a feed has exactly the feed's entities, in
order, each once, after any crash and on any number of copies of the program.

Start with 'feedbridge demo', which needs no other program, or 'feedbridge run URL'.`,
		runCommand(a), reloadCommand(a), demoCommand(a), discoverCommand(a), initCommand(a), addCommand(a), exportCommand(a), tailCommand(a), inspectCommand(a), conformanceCommand(a), verifyCommand(a), checkCommand(a),
		statusCommand(a), pauseCommand(a), resumeCommand(a), pollCommand(a),
		checkpointCommand(a), describeCommand(a), configCommand(a), schemaCommand(a), completionCommand(a), versionCommand(a))
	if man := manCommand(a); man != nil {
		root.AddCommand(man)
	}
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.CompletionOptions.DisableDefaultCmd = true
	root.Version = versionLine()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpCommand(helpCommand())
	root.SetUsageFunc(printUsage)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	return root
}

// helpCommand returns the command "help", which prints the help of a command.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "help [COMMAND]",
		Short:  "Describe a command",
		Hidden: true, // the usage text names --help
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return &usageError{err}
			}
			if len(rest) > 0 {
				return unknownCommand(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
	}
}

// printUsage prints the part of --help below the description.
func printUsage(cmd *cobra.Command) error {
	p := &printer{w: cmd.OutOrStderr()}
	if cmd.HasAvailableSubCommands() {
		p.printLine("Usage:\n  %s COMMAND\n\nCommands:", cmd.CommandPath())
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				p.printLine("  %-*s  %s", c.NamePadding(), c.Name(), c.Short)
			}
		}
	} else {
		p.printLine("Usage:\n  %s", cmd.UseLine())
	}
	if cmd.HasExample() {
		p.printLine("\nExamples:\n%s", ownText(cmd.Example))
	}
	p.printLine("\nFlags:\n%s", ownText(strings.TrimRight(cmd.LocalFlags().FlagUsages(), "\n")))
	if cmd.HasAvailableSubCommands() {
		p.printLine("\n'%s COMMAND --help' describes a command.", cmd.CommandPath())
	}
	return p.err
}

package main

import (
	"cmp"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// startFlag is a flag whose value is a start position.
type startFlag struct {
	datareplication.Start
	set bool
}

func (*startFlag) Type() string { return "POSITION" }

func (f *startFlag) Set(text string) error {
	f.set = true
	return f.UnmarshalText([]byte(text))
}

func (f *startFlag) String() string {
	if !f.set {
		return ""
	}
	return f.Start.String()
}

// formatFlag is a flag whose value is the format of a feed.
type formatFlag struct{ format config.Format }

func (f *formatFlag) addTo(cmd *cobra.Command) {
	cmd.Flags().Var(f, "format", "datareplication, atom or rss; default auto, or the\nformat in the configuration")
}

// applyTo returns the feed with the format of the flag, if that is set.
func (f *formatFlag) applyTo(feed config.Feed) config.Feed {
	feed.Format = cmp.Or(f.format, feed.Format)
	return feed
}

func (*formatFlag) Type() string { return "FORMAT" }

func (f *formatFlag) Set(text string) (err error) {
	f.format, err = config.ParseFormat(text)
	return err
}

func (f *formatFlag) String() string { return string(f.format) }

// limitFlag is a flag whose value is a number of entities; 0 is no limit.
type limitFlag int

func (*limitFlag) Type() string { return "N" }

func (f *limitFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("want a number of entities, 1 or more")
	}
	*f = limitFlag(n)
	return nil
}

func (f *limitFlag) String() string {
	if *f == 0 {
		return ""
	}
	return strconv.Itoa(int(*f))
}

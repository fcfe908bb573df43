package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
)

// feedNames are the names that feeds may have in a configuration.
var feedNames = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// oneFeed returns the feed that a command line names: by its URL, or by its
// name in the configuration, so that headers and credentials need not be typed.
func (a *app) oneFeed(nameOrURL string) (config.Feed, error) {
	if feedNames.MatchString(nameOrURL) {
		_, f, err := a.configuredFeed(nameOrURL)
		return f, err
	}
	cfg, err := config.Load(config.Options{URL: nameOrURL})
	if err != nil {
		return config.Feed{}, err
	}
	for _, f := range cfg.Feeds {
		return f, nil
	}
	return config.Feed{}, fmt.Errorf("no feed was made of %q", nameOrURL)
}

// configuredFeed returns the feed with that name, and the configuration.
func (a *app) configuredFeed(name string) (*config.Config, config.Feed, error) {
	cfg, err := a.load("")
	if err != nil {
		return nil, config.Feed{}, err
	}
	f, ok := cfg.Feeds[name]
	if !ok {
		return nil, config.Feed{}, &usageError{fmt.Errorf("there is no feed %q in the configuration, only: %s",
			name, strings.Join(slices.Sorted(maps.Keys(cfg.Feeds)), ", "))}
	}
	return cfg, f, nil
}

// readFeed reads a feed from its configured start and hands every batch to
// take. It ends at the end of the feed, unless it follows; when ctx ends; and
// with the first error that does not pass by itself, or any if it does not
// follow.
func readFeed(ctx context.Context, src bridge.Source, follow bool, every time.Duration, log *slog.Logger, take func(feed.Batch) error) error {
	var at feed.Cursor
	for {
		b, err := src.Next(ctx, at)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (!follow || errors.Is(err, feed.ErrPermanent)):
			return err
		case err != nil:
			log.Warn("cannot read the feed; trying again", "error", err, "in", every)
		default:
			moved := len(b.Entities) > 0 || !bytes.Equal(at, b.Cursor)
			at = b.Cursor
			if err := take(b); err != nil {
				return err
			}
			if b.More && moved {
				continue
			}
		}
		if !follow {
			return nil
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return nil
		}
	}
}

package kafka

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// metadataMinAge is the shortest time between two metadata requests of a client, also after a
// broker has answered that the metadata is outdated.
const metadataMinAge = 250 * time.Millisecond

// options returns the options of every kgo client. It reads every file once, so that a file
// that cannot be read is an error at the start.
func (c Config) options(log *slog.Logger) ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.SoftwareNameAndVersion("feedbridge", "1"),
		kgo.WithLogger(logger{log}),
		kgo.DialTimeout(c.Timeout),
		kgo.RequestTimeoutOverhead(c.Timeout),
		kgo.RetryTimeout(c.Timeout),
		// Topics are created and changed by other programs, too.
		kgo.MetadataMinAge(metadataMinAge),
		// Do not push client metrics (KIP-714).
		kgo.DisableClientMetrics(),
	}
	if c.TLS.IsEnabled() {
		settings, err := c.TLS.Config("tls")
		if err != nil {
			return nil, err
		}
		settings.ServerName = c.TLS.ServerName
		opts = append(opts, kgo.DialTLSConfig(settings))
	}
	mechanism, err := c.mechanism()
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

// codecs returns the codecs for batches, in order of preference: none if a broker does not
// support the configured one.
func (c Compression) codecs() []kgo.CompressionCodec {
	return []kgo.CompressionCodec{map[Compression]kgo.CompressionCodec{
		None: kgo.NoCompression(), Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(), LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression(),
	}[c], kgo.NoCompression()}
}

// logger writes kgo's log to an [slog.Logger], as debug messages: kgo also returns its errors, or calls a hook
// with them, and they are reported there.
type logger struct{ log *slog.Logger }

func (l logger) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelNone
}

func (l logger) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	l.log.Log(context.Background(), slog.LevelDebug, "kafka client: "+msg, keyvals...)
}

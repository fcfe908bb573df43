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

// logger writes kgo's log to an [slog.Logger]. kgo also returns most of its errors, and they
// are reported there. So its errors are logged as warnings, and its warnings as debug messages.
type logger struct{ log *slog.Logger }

// returned are the errors in franz-go's log that always come back: from a request,
// from [hooks], or with the records of a commit, as when another copy takes over.
var returned = map[string]bool{
	"group manage loop errored":                                true,
	"unable to request api versions":                           true,
	"unable to initialize sasl":                                true,
	"fatal InitProducerID error, failing all buffered records": true,
	"fatal AddPartitionsToTxn error, failing all buffered records (it is possible the client can recover after EndTransaction)": true,
}

func (l logger) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelError
}

func (l logger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := slog.LevelDebug
	if level == kgo.LogLevelError && !returned[msg] {
		to = slog.LevelWarn
	}
	l.log.Log(context.Background(), to, "kafka client: "+msg, keyvals...)
}

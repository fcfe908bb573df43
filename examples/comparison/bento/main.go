// Command bento is Bento with the components that bento.yaml uses.
package main

import (
	"context"

	_ "github.com/warpstreamlabs/bento/public/components/io"
	_ "github.com/warpstreamlabs/bento/public/components/nats"
	_ "github.com/warpstreamlabs/bento/public/components/pure"
	_ "github.com/warpstreamlabs/bento/public/components/pure/extended"
	"github.com/warpstreamlabs/bento/public/service"
)

func main() { service.RunCLI(context.Background()) }

package congestion

func newBBR(packetSize int, seed uint64) algorithm { return newReno(packetSize) }

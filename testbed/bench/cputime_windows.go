package bench

// CPUTime returns 0, since it is not known here.
func CPUTime() float64 { return 0 }

"""Its first thread ends, the second lives on: the kernel shows state Z, and the process is alive."""

import ctypes
import threading
import time

from support.vices.readiness import ready

threading.Thread(target=time.sleep, args=(25,)).start()
ready()
ctypes.CDLL(None).pthread_exit(None)
